"""Advice is seen to be followed where its line does already what it says."""

import textwrap

import pytest
from followed import already

ITEM = {"kind": "", "conf": "", "file": "", "line": 0}

# The kind, the program, of which line 3 is named, and whether that follows it.
LINES = [
    ("gradients_kept", "optimizer.zero_grad()", True),
    ("gradients_kept", "optimizer.zero_grad(set_to_none=False)", False),
    ("gradients_kept", "loss.backward()", False),
    ("graph_retained", "loss.backward()", True),
    ("graph_retained", "loss.backward(retain_graph=True)", False),
    ("graph_retained", "losses.append(loss)", False),
    ("frozen_gradients", "body.requires_grad_(False)", True),
    ("model_copied", "copy = copy.deepcopy(model).cpu()", True),
    ("model_copied", "copy = copy.deepcopy(model)", False),
    ("loss_whole", "loss = sum(checkpoint(f, h) for h in hidden.chunk(8))", True),
    ("loss_whole", "loss = cross_entropy(logits, targets)", False),
    ("grown_by_copies", "out[i:j] = part", True),
    ("grown_by_copies", "out = torch.cat([out, part])", False),
    ("optimizer_temporaries", "o = AdamW(p, fused=True)", True),
    ("optimizer_temporaries", "o = AdamW(p)", False),
    ("data_kept", "rows = data[a:b].to('cuda', non_blocking=True)", True),
    ("steps_kept", "history.append(output.cpu())", True),
    ("steps_kept", "history.append(output.detach())", False),
    ("late_frees", "del hidden", True),
    ("late_frees", "model(hidden)", False),
    # Where in the program they are is what is wrong with these.
    ("gradients_late", "optimizer.zero_grad()", False),
    ("losses_summed", "total.backward()", False),
    ("evaluation_batch", "loader = DataLoader(data, batch_size=8)", False),
]


def follows(tmp_path, kind, text, line=3):
    path = tmp_path / "train.py"
    path.write_text(text)
    return already({**ITEM, "kind": kind, "file": str(path), "line": line}, (), {})


@pytest.mark.parametrize(("kind", "line", "expected"), LINES)
def test_a_line(kind, line, expected, tmp_path):
    said = follows(tmp_path, kind, f"import torch\nfrom net import *\n{line}\n")
    assert said == (line if expected else "")


def test_a_statement_of_several_lines_is_read_whole(tmp_path):
    text = "o = AdamW(\n    p,\n    lr=1,\n    fused=True,\n)\n"
    assert "fused=True" in follows(tmp_path, "optimizer_temporaries", text, 1)


@pytest.mark.parametrize(
    "text",
    [
        "with torch.no_grad():\n    for x in xs:\n        model(x)\n",
        "@torch.inference_mode()\ndef f(x):\n    return model(x)\n",
    ],
)
def test_what_is_around_a_line_counts_for_graphs(text, tmp_path):
    assert "model(x)" in follows(tmp_path, "graph_unused", text)
    bare = textwrap.dedent(text.split("\n", 1)[1])
    assert follows(tmp_path, "graph_unused", bare, 2) == ""


def test_other_words_that_a_program_is_started_with():
    checkpoint = {**ITEM, "kind": "checkpoint"}
    assert already(checkpoint, ("--gradient_checkpointing", "True"), {})
    assert already(checkpoint, ("--lr", "1", "--grad-checkpointing"), {})
    assert already(checkpoint, ("--gradient_checkpointing", "False"), {}) == ""
    settings = {**ITEM, "kind": "settings", "conf": "expandable_segments:True"}
    variables = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert already(settings, (), variables) == "PYTORCH_CUDA_ALLOC_CONF"
    assert already(settings, (), {}) == ""


def test_a_line_that_cannot_be_read_follows_nothing(tmp_path):
    assert follows(tmp_path, "late_frees", "del (\n", 1) == ""
    assert follows(tmp_path, "late_frees", "del x\n", 9) == ""
    gone = {**ITEM, "kind": "late_frees", "file": str(tmp_path / "no.py"), "line": 1}
    assert already(gone, (), {}) == ""
