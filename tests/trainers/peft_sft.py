"""PEFT in TRL's SFTTrainer, with memlab's callbacks.

By hand: LoRA of rank 4 on 2 projections of 64 x 64 in 2 layers is 4 x (4 x 64 + 64 x 4)
elements, 8 KiB, and Adam's state is twice that, and a block of 512 bytes with the step of
each of the 8 tensors.
"""

from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from memlab.callbacks.huggingface import MemoryMonitor, MemorySnapshot

TEXT = "the cat sat on a mat"
words = ["<pad>", "<eos>", "<unk>", *TEXT.split()]
plain = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
)
config = LlamaConfig(
    vocab_size=len(words), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=64,
)  # fmt: skip
recorder = MemorySnapshot(skip_batches=1, interval="3ba")
trainer = SFTTrainer(
    LlamaForCausalLM(config),
    args=SFTConfig(
        "output", max_steps=6, per_device_train_batch_size=2, logging_steps=1, report_to=[],
        max_length=32, bf16=False, save_strategy="no",
    ),  # fmt: skip
    train_dataset=Dataset.from_list([{"text": TEXT}] * 32),
    processing_class=tokenizer,
    peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    callbacks=[recorder, MemoryMonitor()],
)
trainer.train()
kinds = recorder.snapshot.peak()["by_category"]
print({kind: size for kind, size in kinds.items() if size})
print(recorder.files)
assert trainer.state.global_step == 6
assert "memory/allocated_bytes" in trainer.state.log_history[0]
assert kinds["optimizer_state"] == 2 * 8192 + 8 * 512, kinds["optimizer_state"]
