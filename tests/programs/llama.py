"""Trains a small Llama in bfloat16 for three steps and prints the allocator's peaks."""

import peaks
import torch
import transformers
from transformers.initialization import no_init_weights


def main():
    torch.manual_seed(0)
    torch.backends.cuda.enable_cudnn_sdp(False)
    config = transformers.LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=8,
        vocab_size=32000,
    )
    with no_init_weights():  # the memory is the same, the CPU's time a hundredth
        model = transformers.LlamaForCausalLM(config)
    model.to("cuda", torch.bfloat16)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(3):
        tokens = torch.randint(0, 32000, (4, 1024), device="cuda")
        outputs = model(input_ids=tokens, labels=tokens)
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
    peaks.show()


main()
