"""Trains a GPT-2 in float32 for three steps and prints the allocator's peaks."""

import peaks
import torch
import transformers


def main():
    torch.manual_seed(0)
    torch.backends.cuda.enable_cudnn_sdp(False)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(3):
        tokens = torch.randint(0, 50257, (8, 512), device="cuda")
        outputs = model(input_ids=tokens, labels=tokens)
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
    peaks.show()


main()
