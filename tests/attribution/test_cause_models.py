"""At the peak of whole training runs at least 99 % of the bytes name a line of the
program, a module, a category and a phase."""

import importlib.util
import json
import re

import pytest

pytestmark = pytest.mark.cuda

SIZES = "hidden_size=256, num_hidden_layers=4, num_attention_heads=4"
TEXT = "input_ids=(ids := torch.randint(0, 8000, (4, 256), device='cuda')), labels=ids"
IMAGES = (
    "pixel_values=torch.randn(8, 3, 112, 112, device='cuda'),"
    "labels=torch.zeros(8, dtype=torch.long, device='cuda')"
)
MODELS = {
    "gpt2": (
        "GPT2LMHeadModel(GPT2Config(n_embd=256, n_layer=4, n_head=4, vocab_size=8000))",
        TEXT,
    ),
    "bert": (
        f"BertForMaskedLM(BertConfig(vocab_size=8000, intermediate_size=1024, {SIZES}))",
        TEXT,
    ),
    "llama_checkpointed": (
        "LlamaForCausalLM(LlamaConfig(vocab_size=8000, intermediate_size=704, "
        f"num_key_value_heads=2, {SIZES}))",
        TEXT,
    ),
    "vit": (
        "ViTForImageClassification(ViTConfig(intermediate_size=1024, image_size=112, "
        f"{SIZES}))",
        IMAGES,
    ),
    "resnet": (
        "ResNetForImageClassification(ResNetConfig(embedding_size=32, "
        "hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2]))",
        IMAGES,
    ),
}

PROGRAM = """
import json, torch, memlab
from transformers import {names}
torch.cuda.init()
torch.backends.cuda.enable_cudnn_sdp(False)
snapshot = memlab.MemorySnapshot()
snapshot.start()
model = {model}.cuda()
if {checkpointed}:
    model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model({inputs}).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
snapshot.stop()
print(json.dumps(snapshot.peak()))
"""


@pytest.mark.parametrize("name", MODELS)
def test_99_per_cent_of_the_peak_have_a_cause(name, tmp_path, phantom_run):
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    model, inputs = MODELS[name]
    program = tmp_path / "train.py"
    program.write_text(
        PROGRAM.format(
            names=", ".join(re.findall(r"[A-Z]\w+(?=\()", model)),
            model=model, inputs=inputs, checkpointed=name == "llama_checkpointed",
        )
    )  # fmt: skip
    done = phantom_run(program)
    peak = json.loads(done.stdout.splitlines()[-1])
    total = peak["peak"]["allocated_bytes"]
    modules = sum(row["bytes"] for row in peak["by_module"] if row["module"])
    assert modules + peak["outside_modules_bytes"] + peak["unknown_module_bytes"] == total
    known = {
        "line": sum(r["bytes"] for r in peak["by_line"] if r["file"] == str(program)),
        "module": modules + peak["outside_modules_bytes"],
        "category": total - peak["by_category"]["unknown"],
        "phase": total - peak["by_phase"].get("unknown", 0),
    }
    shown = {**known, "of it outside": peak["outside_modules_bytes"]}
    print(name, total, {k: f"{100 * v / total:.2f} %" for k, v in shown.items()})
    reasons = [row for row in peak["by_module"] if not row["module"]]
    print({row["reason"]: f"{100 * row['bytes'] / total:.2f} %" for row in reasons})
    assert min(known.values()) >= 0.99 * total, known
