"""Modules at the peak in ten rows, repeated ones rolled up; lines of a model in a library."""

import importlib.util
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount
from test_report_text import frame, run, snapshot_file

from memlab._files import load
from memlab._report import model_lines, modules

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20

LAYERS = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(256, 1024)
        self.outer = nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.outer(torch.relu(self.inner(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(48))
        self.head = nn.Linear(256, 1024)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

net = Net().cuda()
for _ in range(2):
    net(torch.ones(512, 256, device="cuda")).sum().backward()
"""


@pytest.fixture
def recorded(tmp_path, device_environment):
    """A function that runs a program's text under `memlab run`; the folder of the results."""

    def record(text, name="train.py"):
        program = tmp_path / name
        program.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "memlab", "run", "--out", "out", program],
            env=device_environment, cwd=tmp_path, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return tmp_path / "out"

    return record


def report(folder):
    status, text, _ = run("report", "--full", folder)
    assert status == 0
    return text


def part(text, heading):
    """The rows below HEADING in TEXT."""
    return text.split(f"\n{heading}\n")[1].split("\n\n")[0].splitlines()


def named(row):
    return row.split(" %  ")[1]


def rest_of(answer):
    """The bytes that no row of a module or a reason has."""
    return sum(
        row["bytes"]
        for row in answer["module_rows"]
        if not row["module"] and not row["reason"]
    )


@pytest.mark.cuda
def test_48_layers_are_one(recorded):
    out = recorded(LAYERS)
    recording = load.read_recording(out / "rank0.mlab")
    answer = recording.peak(0)
    rows = {row["module"]: row for row in answer["module_rows"]}

    # Weights, biases and gradients of float32, of 48 layers each; and what a layer's forward
    # keeps for the backward pass, as far as it is there at the peak.
    inner = 48 * (256 * 1024 + 1024) * 4
    assert rows["layers.*.inner"]["modules"] == 48
    assert rows["layers.*.inner"]["bytes"] >= 2 * inner
    assert rows["layers.*.outer"]["bytes"] >= 2 * 48 * (256 * 1024 + 256) * 4
    assert sum(row["bytes"] for row in answer["module_rows"]) == answer["peak"]["allocated_bytes"]
    assert rest_of(answer) <= 0.05 * answer["peak"]["allocated_bytes"]

    # Both trees have the same bytes, node by node.
    def check(node):
        inside = sum(map(check, node["children"]))
        assert node["own_bytes"] + inside == node["bytes"]
        return node["bytes"]

    assert sum(map(check, answer["module_tree"])) == answer["peak"]["allocated_bytes"]
    [layers] = (node for node in answer["module_tree"] if node["module"] == "layers")
    [star] = layers["children"]
    assert (star["module"], star["modules"]) == ("layers.*", 48)
    each = [row for row in answer["by_module"] if row["module"].startswith("layers.")]
    assert sum(row["bytes"] for row in each) == star["bytes"]

    text = report(out)
    told = [named(row) for row in part(text, "By module")]
    # Its own are the results of relu() and the sums.
    assert {"layers.*.inner x48", "layers.*.outer x48", "layers.* x48, itself"} < set(told)
    assert len(told) <= 10

    status, first, _ = run("report", out)
    assert status == 0
    lines = first.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert any(line.endswith("layers.*.inner x48") for line in lines)

    # As it was: each of them.
    _, single, _ = run("report", "--by", "module", "--lines", "200", out)
    assert sum("layers." in line for line in single.splitlines()) == len(each)


def test_rows_in_words():
    row = {"module": "h.*.mlp", "reason": "", "modules": 12, "share": "all"}
    assert modules.name(row) == "h.*.mlp x12"
    assert modules.name({**row, "share": "own"}) == "h.*.mlp x12, itself"
    assert modules.name({**row, "share": "rest", "modules": 1}) == "h.*.mlp, the rest"
    assert modules.name({**row, "module": "", "share": "rest"}) == "(the rest)"
    outside = {"module": "", "reason": "no Python stack", "modules": 0, "share": "all"}
    assert modules.name(outside) == "(no Python stack)"
    assert modules.name({**row, "module": "\x1b[1m"}) == "\\x1b[1m x12"


def test_few_rows_are_asked_for(tmp_path):
    path = snapshot_file(tmp_path / "run.pickle", [(MIB, [frame("a.py", 1, "f")])])
    recording = load.read_recording(path)
    [row] = recording.peak(0, module_rows=1)["module_rows"]
    assert row["bytes"] == MIB
    for wrong in 0, 11:
        with pytest.raises(ValueError, match=f"1 to 10, not {wrong}"):
            recording.peak(0, module_rows=wrong)
    # It names no module: a table would say nothing.
    assert modules.rows(recording, 0, 5) == ()


# ---- Lines of a model in a library ----

PACKAGES = "/venv/lib/python3.11/site-packages"


def in_library(size, line, file="net.py", module="torch/nn/functional.py"):
    return size, [
        frame(f"{PACKAGES}/{module}", 9, "linear"),
        frame(f"{PACKAGES}/lib/{file}", line, "forward"),
        frame(f"{PACKAGES}/torch/nn/modules/module.py", 1, "_call_impl"),
        frame(f"{PACKAGES}/lib/trainer.py", 3, "train"),
        frame("sft.py", 108, "<module>"),
    ]


@pytest.fixture
def trainer(tmp_path):
    """15 MiB that sft.py:108 made by way of a library, 5 of which in its own trainer, and 5
    of other lines.  Of memlab's own: of torch's what they are would be estimated."""
    path = snapshot_file(
        tmp_path / "run.pickle",
        [
            in_library(6 * MIB, 20),
            in_library(4 * MIB, 30),
            in_library(3 * MIB, 20),
            (2 * MIB, in_library(0, 0)[1][3:]),
            (3 * MIB, [frame("sft.py", 7, "main")]),
            (2 * MIB, [frame(f"{PACKAGES}/lib/net.py", 2, "make"), frame("sft.py", 9, "f")]),
        ],
    )
    snapshot = pickle.loads(path.read_bytes())
    snapshot["memlab"] = {"version": 1, "source": "cuda", "devices": [{}]}
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    return path


def test_a_line_that_calls_a_library_is_told_by_the_model_s_own(trainer):
    rows = [" ".join(row.split()) for row in part(report(trainer), "By line")]
    assert rows == [
        "9.00 MiB 45.0 % 2 blocks unknown sft.py:108 -> lib/net.py:20 forward",
        "4.00 MiB 20.0 % 1 block unknown sft.py:108 -> lib/net.py:30 forward",
        "3.00 MiB 15.0 % 1 block unknown sft.py:7 main",
        # Less than a fifth: as it is.
        "2.00 MiB 10.0 % 1 block unknown sft.py:9 f",
        "2.00 MiB 10.0 % 1 block unknown sft.py:108 -> lib/trainer.py:3 train",
    ]
    # As it was.
    _, text, _ = run("report", "--by", "line", trainer)
    rows = [" ".join(row.split()) for row in part(text, "By line")]
    assert rows[0] == "13.0 MiB 65.0 % 3 blocks unknown sft.py:108 <module>"


def test_inner_lines_add_up_to_their_line(trainer):
    answer = load.read_recording(trainer).peak(0)
    by_line = {(group["line"], group["phase"]): group for group in answer["by_line"]}
    inner = by_line[108, "forward"]["inner"]
    assert [(each["line"], each["bytes"], each["blocks"]) for each in inner] == [
        (20, 9 * MIB, 2), (30, 4 * MIB, 1),
    ]  # fmt: skip
    assert inner[0]["by_category"] == {"unknown": 9 * MIB}
    # Outside of a module's call it is a line of its own, as in any program.
    [inner] = by_line[108, "unknown"]["inner"]
    assert (inner["file"], inner["line"]) == (f"{PACKAGES}/lib/trainer.py", 3)
    by_line = {group["line"]: group for group in answer["by_line"]}
    assert by_line[7]["inner"] == []
    assert [each["line"] for each in by_line[9]["inner"]] == [2]


def test_a_line_is_taken_apart_by_what_it_holds_in_all_phases(trainer):
    [group] = (
        group for group in load.read_recording(trainer).peak(0)["by_line"]
        if group["line"] == 9
    )  # fmt: skip
    backward = {**group, "phase": "backward", "backward": True}
    whole = 5 * group["bytes"]
    assert [row.inner for row in model_lines.rows([group], whole)] != [None]
    assert [row.inner for row in model_lines.rows([group], whole + 5)] == [None]
    rows = model_lines.rows([group, backward], 2 * whole)
    assert [row.place() for row in rows] == [
        "sft.py:9 -> lib/net.py:2 make", "sft.py:9 -> lib/net.py:2 make (backward)",
    ]  # fmt: skip
    assert [row.inner for row in model_lines.rows([group, backward], 2 * whole + 10)] == (
        [None, None]
    )


TRAINERS = {
    "transformers": """
import tempfile, torch, transformers
class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        tokens = torch.full((128,), index)
        return {"input_ids": tokens, "labels": tokens}
config = transformers.LlamaConfig(hidden_size=256, intermediate_size=1024, vocab_size=500,
    num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4)
arguments = transformers.TrainingArguments(tempfile.mkdtemp(), report_to=[], max_steps=2,
    per_device_train_batch_size=16, save_strategy="no", disable_tqdm=True)
trainer = transformers.Trainer(transformers.LlamaForCausalLM(config), arguments,
    train_dataset=Tokens())
trainer.train()
""",
    "lightning": """
import lightning, torch
from lightning.pytorch.demos import Transformer, WikiText2
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Transformer(vocab_size=500, nlayers=2)
    def training_step(self, batch, index):
        return self.model(batch, batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.utils.data.DataLoader([torch.zeros(64, dtype=torch.long)] * 8, 4)
trainer = lightning.Trainer(accelerator="gpu", devices=1, max_steps=2, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), data)
""",
}


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("library", "model"),
    [
        ("transformers", "transformers/models/llama/modeling_llama.py"),
        ("lightning", "lightning/pytorch/demos/transformer.py"),
    ],
)
def test_trainers_of_libraries(library, model, recorded):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    out = recorded(TRAINERS[library], "sft.py")
    answer = load.read_recording(out / "rank0.mlab").peak(0)
    for group in answer["by_line"]:
        parts = group["inner"]
        assert sum(part["bytes"] for part in parts) in (0, group["bytes"])
        assert sum(part["blocks"] for part in parts) in (0, group["blocks"])
        assert not any("site-packages/torch/" in part["file"] for part in parts)
    own = [
        part
        for group in answer["by_line"]
        for part in group["inner"]
        if group["file"].endswith("/sft.py") and part["file"].endswith(model)
    ]
    assert own
    assert all(part["function"] != "_call_impl" for part in own)
    told = part(report(out), "By line")
    assert any(f"-> {model}:" in line and "sft.py:" in line for line in told)


# ---- Real programs ----

FEW = ("mlp_cuda_graph", "lstm")


@pytest.mark.cuda
@pytest.mark.nightly
def test_ten_rows_have_95_per_cent(device_environment):
    """Of programs of bench/fit_programs.py; all of them at night."""
    bench = ROOT / "bench" / "module_rows.py"
    names = [] if amount("MODULE_PROGRAMS", len(FEW)) > len(FEW) else FEW
    done = subprocess.run(
        [sys.executable, bench, "--json", *names], env=device_environment,
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) >= len(FEW)
    assert all(row["rows"] <= 10 for row in told)
    assert [row["name"] for row in told if row["covered"] < 0.95] == []
