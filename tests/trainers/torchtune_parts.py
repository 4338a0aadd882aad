"""What torchtune_lora.yaml names: a small model and its data, without files.

By hand: LoRA of rank 4 on 2 projections of 64 x 64 in 2 layers is 4 x (4 x 64 + 64 x 4)
elements, and Adam's state twice their 8 KiB; torch keeps the steps on the CPU.
"""

import torch
from torchtune.models.llama3_2 import lora_llama3_2
from torchtune.modules.peft import get_adapter_params
from torchtune.training import MODEL_KEY

PROJECTIONS = ["q_proj", "v_proj"]


class Tokenizer:
    pad_id = 0


class Samples(torch.utils.data.Dataset):
    def __init__(self, tokenizer):
        pass

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return {"tokens": [1, 2, 3, 4, 5, 6, 7, 8], "labels": [1, 2, 3, 4, 5, 6, 7, 8]}


def model(lora_rank, lora_alpha, **_):
    return lora_llama3_2(
        PROJECTIONS,
        vocab_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=4,
        embed_dim=64,
        max_seq_len=32,
        intermediate_dim=128,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
    )


class Checkpointer:
    """Begins with the model's own values, and writes nothing."""

    def __init__(self, **_):
        pass

    def load_checkpoint(self):
        made = model(4, 8)
        adapter = get_adapter_params(made)
        return {
            MODEL_KEY: {n: v for n, v in made.state_dict().items() if n not in adapter}
        }

    def save_checkpoint(self, *args, **kwargs):
        pass
