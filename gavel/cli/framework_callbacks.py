"""Patches of scripts whose library trains by itself: Hugging Face, Lightning and Keras get a callback."""

import ast

from gavel.cli.script_text import Advice, Script, has_keyword, is_on_one_line, keyword_of

TRAINER = r"(.+\.)?\w*Trainer"


def transformers(script: Script) -> Advice | None:
    """Return the patch of a Hugging Face Trainer; None for a script without one, which has a loop of its own."""
    name, hint = (
        "Hugging Face Trainer",
        "from gavel_runtime.transformers import GavelCallback\n"
        "gavel = GavelCallback()\n"
        "trainer = Trainer(.., callbacks=[gavel])\n"
        "trainer.train(resume_from_checkpoint=gavel.checkpoint)",
    )
    made = script.calls(TRAINER)
    if not made:
        return None
    trains = script.method_calls(made[0][0], "train")
    is_clear = len(made) == len(trains) == 1 and not trains[0].args
    if not is_clear or has_keyword(trains[0], "resume_from_checkpoint"):
        return Advice(name, None, hint)
    script.add_import("from gavel_runtime.transformers import GavelCallback")
    script.insert(script.statement_with(made[0][1]), "gavel = GavelCallback()")
    script.add_argument(trains[0], "resume_from_checkpoint", "gavel.checkpoint")
    return _advice(script, name, hint, made[0][1])


def lightning(script: Script) -> Advice:
    """Return the patch of a Lightning Trainer whose `fit` is given a loader or a data module."""
    name, hint = (
        "Lightning",
        "from gavel_runtime.lightning import GavelCallback\n"
        "gavel = GavelCallback(loader)    # before the Trainer; loader: that of trainer.fit, or its data module\n"
        "trainer = lightning.Trainer(.., callbacks=[gavel])\n"
        "trainer.fit(model, gavel.loader, ckpt_path=gavel.checkpoint)",
    )
    made = script.calls(TRAINER)
    fits = script.method_calls(made[0][0], "fit") if len(made) == 1 else []
    datamodule = keyword_of(fits[0], "datamodule") if len(fits) == 1 else None
    loader = datamodule or (_training_loader(fits[0]) if len(fits) == 1 else None)
    if loader is None or has_keyword(fits[0], "ckpt_path") or not is_on_one_line(loader):
        return Advice(name, None, hint)
    statement = script.statement_with(made[0][1])
    if not script.has_all(loader, statement):
        return Advice(name, None, hint)
    script.add_import("from gavel_runtime.lightning import GavelCallback")
    script.insert(statement, f"gavel = GavelCallback({ast.unparse(loader)})")
    script.replace(loader, "gavel.loader")
    script.add_argument(fits[0], "ckpt_path", "gavel.checkpoint")
    return _advice(script, name, hint, made[0][1])


def keras(script: Script) -> Advice:
    """Return the patch of one `model.fit`."""
    name, hint = (
        "Keras",
        "from gavel_runtime.keras import GavelCallback\n"
        "gavel = GavelCallback(model, epochs=N)    # after model.compile\n"
        "model.fit(.., epochs=N, initial_epoch=gavel.initial_epoch, callbacks=gavel.after([..]))",
    )
    fits = [
        (node.func.value, node)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fit"
    ]
    epochs = keyword_of(fits[0][1], "epochs") if len(fits) == 1 else None
    if epochs is None or has_keyword(fits[0][1], "initial_epoch") or isinstance(fits[0][0], ast.Call):
        return Advice(name, None, hint)
    model, fit = fits[0]
    script.add_import("from gavel_runtime.keras import GavelCallback")
    line = f"gavel = GavelCallback({ast.unparse(model)}, epochs={ast.unparse(epochs)})"
    script.insert(script.statement_with(fit), line)
    callbacks = keyword_of(fit, "callbacks")
    has_others = isinstance(callbacks, ast.Name) or (isinstance(callbacks, ast.List) and bool(callbacks.elts))
    if callbacks is not None and has_others:
        script.insert_ahead(callbacks, "gavel.after(")
        script.insert_behind(callbacks, ")")
    script.add_argument(fit, "initial_epoch", "gavel.initial_epoch")
    return Advice(name, script.changed(), hint) if has_others else _advice(script, name, hint, fit)


def _training_loader(fit: ast.Call) -> ast.expr | None:
    """Return the expression of the loader that `trainer.fit` trains with; None where a data module has it."""
    if has_keyword(fit, "datamodule") or any(isinstance(each, ast.Starred) for each in fit.args):
        return None
    return fit.args[1] if len(fit.args) > 1 else keyword_of(fit, "train_dataloaders")


def _advice(script: Script, name: str, hint: str, call: ast.Call) -> Advice:
    """Return the advice with the callback added to the call, or the hint where it has no plain list of callbacks."""
    callbacks = keyword_of(call, "callbacks")
    if isinstance(callbacks, ast.List):
        script.append(callbacks, "gavel")
    elif has_keyword(call, "callbacks"):
        return Advice(name, None, hint)
    else:
        script.add_argument(call, "callbacks", "[gavel]")
    return Advice(name, script.changed(), hint)
