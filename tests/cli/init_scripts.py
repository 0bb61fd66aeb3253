"""Scripts that `gavel init` patches, or says of what they lack, with what is expected of each."""

WRITTEN_OTHERWISE = {
    "a loop with numbers and a bar": (
        "from torch import optim\nfrom tqdm import tqdm\nmodel, loader = build()\n"
        "optimizer = optim.AdamW(model.parameters(), lr=0.1)\n"
        "for epoch in range(9):\n    for i, batch in enumerate(loader):\n        train(batch)\n",
        [
            "run = checkpointed(loader=loader, epochs=9, model=model, optimizer=optimizer)",
            "for epoch in run.epochs():",
            "    for i, batch in enumerate(run.batches(), run.first_batch):",
        ],
    ),
    "epochs that call a function of the script": (
        "import torch\nimport torch.optim as optim\n"
        "def train(args, model, loader, optimizer):\n    model.train()\n"
        "    for i, batch in enumerate(loader):\n        loss(model, batch).backward()\n"
        "def test(model, loader):\n    for batch in loader:\n        model(batch)\n"
        "def main(args):\n    model, train_loader, test_loader = build()\n"
        "    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)\n"
        "    for epoch in range(1, args.epochs + 1):\n"
        "        train(args, model, loader=train_loader, optimizer=optimizer)\n        test(model, test_loader)\n",
        [
            "def train(run, args, model, loader, optimizer):",
            "    for i, batch in enumerate(run.batches(), run.first_batch):",
            "    run = checkpointed(loader=train_loader, epochs=args.epochs, model=model, optimizer=optimizer)",
            "    for epoch in run.epochs(1):",
            "        train(run, args, model, loader=train_loader, optimizer=optimizer)",
        ],
    ),
    "epochs of the module that call a function": (
        "import torch\nmodel, loader = build()\noptimizer = torch.optim.SGD(model.parameters())\n"
        "def train(epoch):\n    with profiled():\n        for batch in loader:\n            f(batch).backward()\n"
        "if __name__ == '__main__':\n    for epoch in range(9):\n        train(epoch)\n",
        [
            "        for batch in run.batches():",
            "    run = checkpointed(loader=loader, epochs=9, model=model, optimizer=optimizer)",
            "    for epoch in run.epochs():",
        ],
    ),
    "epochs that call a method": (
        "import torch\nclass Training:\n    def __init__(self, model, loader):\n"
        "        self.model, self.loader, self.run = model, loader, None\n"
        "        self.optimizer = torch.optim.SGD(self.model.parameters())\n"
        "    def one_epoch(self, loader):\n        for batch in loader:\n            f(batch).backward()\n"
        "    def fit(self):\n        for epoch in range(9):\n            loss = self.one_epoch(self.loader)\n",
        [
            "        for batch in self.run.batches():",
            "        self.run = checkpointed(loader=self.loader, epochs=9, model=self.model, optimizer=self.optimizer)",
            "        for epoch in self.run.epochs():",
        ],
    ),
    "a loop that trains beside one that evaluates": (
        "import torch\nimport wandb\nrun = wandb.init()\nmodel, loader, others = build()\n"
        "optimizer = torch.optim.SGD(model.parameters())\nfor epoch in range(9):\n    for batch in loader:\n"
        "        f(batch).backward()\n    for batch in others:\n        f(batch)\n",
        [
            "training = checkpointed(loader=loader, epochs=9, model=model, optimizer=optimizer)",
            "for epoch in training.epochs():",
            "    for batch in training.batches():",
        ],
    ),
    "gradients of several batches": (
        "import torch\nm, l = net()\no = torch.optim.SGD(m.parameters())\nfor e in range(3):\n"
        "    for i, x in enumerate(l):\n        if i % 4 == 3:\n            o.step()\n            o.zero_grad()\n",
        [
            "run = checkpointed(loader=l, epochs=3, model=m, optimizer=o, gradients=m)",
            "for e in run.epochs():",
            "    for i, x in enumerate(run.batches(), run.first_batch):",
        ],
    ),
    "a loop with Accelerate": (
        "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\nmodel, loader = build()\n"
        "optimizer = torch.optim.SGD(model.parameters())\n"
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
        "for epoch in range(9):\n    for batch in tqdm(loader):\n        train(batch)\n",
        [
            "run = checkpointed(loader=loader, epochs=9, accelerator=accelerator)",
            "for epoch in run.epochs():",
            "    for batch in tqdm(run.batches()):",
        ],
    ),
    "gradients that Accelerate sums": (
        "import torch\nfrom accelerate import Accelerator\na = Accelerator(gradient_accumulation_steps=4)\n"
        "model, o, l = a.prepare(*build())\nfor e in range(3):\n"
        "    for x in l:\n        with a.accumulate(model):\n            a.backward(f(x))\n            o.step()\n",
        [
            "run = checkpointed(loader=l, epochs=3, accelerator=a, gradients=model)",
            "for e in run.epochs():",
            "    for x in run.batches():",
        ],
    ),
    "a Trainer with callbacks": (
        "from transformers import EarlyStoppingCallback, Trainer\n"
        "trainer = Trainer(model, callbacks=[EarlyStoppingCallback(3)])\ntrainer.train()",
        [
            "gavel = GavelCallback()",
            "trainer = Trainer(model, callbacks=[EarlyStoppingCallback(3), gavel])",
            "trainer.train(resume_from_checkpoint=gavel.checkpoint)",
        ],
    ),
    "a Trainer in a function": (
        "import lightning as L\ndef main(model, loader, test):\n"
        "    trainer = L.Trainer()\n    trainer.fit(model, train_dataloaders=loader, val_dataloaders=test)\n",
        [
            "    gavel = GavelCallback(loader)",
            "    trainer = L.Trainer(callbacks=[gavel])",
            "    trainer.fit(model, train_dataloaders=gavel.loader, val_dataloaders=test, ckpt_path=gavel.checkpoint)",
        ],
    ),
    "a Trainer with a data module": (
        "import lightning as L\nfrom own import Data\ntrainer = L.Trainer()\ntrainer.fit(model, datamodule=Data())\n",
        [
            "gavel = GavelCallback(Data())",
            "trainer = L.Trainer(callbacks=[gavel])",
            "trainer.fit(model, datamodule=gavel.loader, ckpt_path=gavel.checkpoint)",
        ],
    ),
    "a model that is fitted with callbacks": (
        "import keras\nmodel = build()\n"
        "model.fit(x, y, epochs=9, callbacks=[keras.callbacks.EarlyStopping(patience=3)])\n",
        [
            "gavel = GavelCallback(model, epochs=9)",
            "model.fit(x, y, epochs=9, callbacks=gavel.after([keras.callbacks.EarlyStopping(patience=3)]), "
            "initial_epoch=gavel.initial_epoch)",
        ],
    ),
    "a model that is fitted with a list of callbacks": (
        "import keras\nmodel = build()\ncallbacks = own()\nmodel.fit(x, y, callbacks=callbacks, epochs=9)\n",
        [
            "gavel = GavelCallback(model, epochs=9)",
            "model.fit(x, y, callbacks=gavel.after(callbacks), epochs=9, initial_epoch=gavel.initial_epoch)",
        ],
    ),
    "a model that is fitted for its history": (
        "import keras\nmodel = build()\nhistory = model.fit(\n    x,\n    y,\n    epochs=EPOCHS,\n)\n",
        [
            "gavel = GavelCallback(model, epochs=EPOCHS)",
            "    epochs=EPOCHS,",
            "    initial_epoch=gavel.initial_epoch,",
            "    callbacks=[gavel],",
        ],
    ),
    "a state of one variable, with a loss that is only printed": (
        "import jax\ndef train(state, steps):\n    loss = None\n    for step in range(steps):\n"
        "        state, loss = update(state, step)\n        print(loss)\n    return state\n",
        [
            "    run = checkpointed((state,), total=steps)",
            "    state, = run.state",
            "    for step in run.steps():",
            "        run.state = state,",
        ],
    ),
}

JAX_LEFT_EARLY = (
    "import jax\nparams = begin()\nfor step in range(90):\n    params, loss = update(params, step)\n"
    "    if step % 10:\n        continue\n    if loss < 0.1:\n        break\n    print(loss)\nelse:\n    print('all')\n"
)

TRAINED_BY_A_FUNCTION = (
    "import torch\ndef train(model, loader):\n    for x in loader:\n        f(x).backward()\n"
    "def main(m, l):\n    o = torch.optim.SGD(m.parameters())\n    for e in range(3):\n        train(m, l)\n"
)


BEGINNING = "import torch\nmodel, loader, held_out = build()\noptimizer = torch.optim.SGD(model.parameters())\n"
STEP = "        loss = f(model, batch)\n        loss.backward()\n        optimizer.step()\n"
EPOCHS = "for epoch in range(9):\n"
BATCHES = "    for batch in loader:\n"
ARGUMENTS = "loader=loader, epochs=9, model=model, optimizer=optimizer"
LEFT_EARLY = {  # name: (the script after its beginning, lines of the patched one)
    "a limit of batches in each epoch": (
        EPOCHS + "    for i, batch in enumerate(loader):\n        if i >= 5:\n            break\n" + STEP,
        [f"run = checkpointed({ARGUMENTS})", "    for i, batch in enumerate(run.batches(), run.first_batch):"],
    ),
    "a batch that is left out": (
        EPOCHS + BATCHES + "        if len(batch) < 8:\n            continue\n" + STEP,
        [f"run = checkpointed({ARGUMENTS})", "    for batch in run.batches():"],
    ),
    "a loss that is not finite": (
        EPOCHS
        + BATCHES
        + STEP
        + "        if not loss.isfinite():\n            break\n    else:\n        save(model)\n",
        [f"run = checkpointed({ARGUMENTS})", "    for batch in run.batches():", "    else:"],
    ),
    "a limit of steps": (
        "steps = 0\n"
        + EPOCHS
        + BATCHES
        + STEP
        + "        steps += 1\n        if steps == 70:\n            break\n    if steps == 70:\n        break\n",
        [
            f"run = checkpointed({ARGUMENTS}, values=lambda: (steps,))",
            "steps, = run.values",
            "        run.finish()",
        ],
    ),
    "an early stop": (
        "best, waited = float('inf'), 0\n"
        + EPOCHS
        + BATCHES
        + STEP
        + "    value = evaluate(model, held_out)\n    if value < best:\n        best, waited = value, 0\n    else:\n"
        "        waited += 1\n        if waited > 3:\n            break\n",
        [
            f"run = checkpointed({ARGUMENTS}, values=lambda: (best, waited))",
            "best, waited = run.values",
            "            run.finish()",
        ],
    ),
    "a list of losses": (
        "losses = []\n" + EPOCHS + BATCHES + STEP + "    losses.append(evaluate(model))\n",
        [f"run = checkpointed({ARGUMENTS}, values=lambda: (losses,))", "losses, = run.values"],
    ),
    "a return out of both loops": (
        "def train():\n    "
        + (EPOCHS + BATCHES + STEP).replace("\n", "\n    ")
        + "        if loss < 0.1:\n                return loss\n",
        [f"    run = checkpointed({ARGUMENTS})", "                run.finish()", "                return loss"],
    ),
    "a return out of the function for one epoch": (
        "def train(loader):\n    for batch in loader:\n"
        + STEP
        + "        if loss < 0.1:\n            return True\n"
        + EPOCHS
        + "    if train(loader):\n        break\n",
        [
            "    for batch in run.batches():",
            f"run = checkpointed({ARGUMENTS})",
            "        run.finish()",
            "        break",
        ],
    ),
    "an early stop in a class": (
        "class Trainer:\n    def __init__(self):\n        self.waited = 0\n    def one_epoch(self):\n"
        "        for batch in loader:\n            f(batch).backward()\n            self.waited += 1\n"
        "    def fit(self):\n        for epoch in range(9):\n            self.one_epoch()\n"
        "            if self.waited > 30:\n                return\n",
        [
            "        for batch in self.run.batches():",
            f"        self.run = checkpointed({ARGUMENTS}, values=lambda: (self.waited,))",
            "        self.waited, = self.run.values",
            "        for epoch in self.run.epochs():",
            "                self.run.finish()",
        ],
    ),
}
NOT_KEPT = {  # name: (the script after its beginning, what the sentence says)
    "a mean of the epoch": (
        EPOCHS
        + "    total = 0.0\n"
        + BATCHES
        + STEP
        + "        total += loss.item()\n    if total < 0.1:\n        break\n",
        "`total` says so. It begins anew in each epoch",
    ),
    "a mean that a function returns": (
        "def train(loader):\n    total = 0.0\n    for batch in loader:\n"
        + STEP
        + "        total += loss.item()\n    return total\n"
        + EPOCHS
        + "    if train(loader) < 0.1:\n        break\n",
        "`total` says so. It begins anew in each epoch",
    ),
    "an object of the script": (
        "class Patience:\n    def __call__(self, value):\n        return False\npatience = Patience()\n"
        + EPOCHS
        + BATCHES
        + STEP
        + "    if patience(evaluate(model)):\n        break\n",
        "checkpointed(.., patience=patience)",
    ),
    "an object of another library": (
        "from pytorchtools import EarlyStopping\nstopper = EarlyStopping(patience=3)\n"
        + EPOCHS
        + BATCHES
        + STEP
        + "    stopper(evaluate(model), model)\n    if stopper.early_stop:\n        break\n",
        "checkpointed(.., stopper=stopper)",
    ),
    "an exit behind its condition": (
        EPOCHS + BATCHES + STEP + "    if evaluate(model) < 0.1: break\n",
        "line 9: put `break` on a line of its own",
    ),
}
