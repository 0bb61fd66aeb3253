"""A small language model with the Trainer of Hugging Face, from a configuration: nothing is downloaded."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from gavel_runtime.transformers import GavelCallback

set_seed(0)
tokens = torch.randint(0, 64, (256, 16), generator=torch.Generator().manual_seed(1))
dataset = [{"input_ids": row, "labels": row} for row in tokens]
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))
arguments = TrainingArguments(
    output_dir="output",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    learning_rate=1e-3,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
gavel = GavelCallback()
trainer = Trainer(model=model, args=arguments, train_dataset=dataset, callbacks=[gavel])
trainer.train(resume_from_checkpoint=gavel.checkpoint)
print("final", sum(each.abs().sum().item() for each in model.parameters()))
