"""Trains a small GPT-2 with transformers' Trainer: loader workers, accumulated gradients,
bfloat16, activation checkpointing."""

import tempfile

import torch
import transformers


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        tokens = torch.full((256,), index)
        return {"input_ids": tokens, "labels": tokens}


def main():
    config = transformers.GPT2Config(n_layer=2, n_embd=256, n_head=4)
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        bf16=True,
        dataloader_num_workers=2,
        logging_steps=2,
        report_to=[],
    )
    model = transformers.GPT2LMHeadModel(config)
    transformers.Trainer(model=model, args=arguments, train_dataset=Tokens()).train()


if __name__ == "__main__":
    main()
