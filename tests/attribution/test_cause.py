"""The cause of every byte at the peak: line, phase and category of nets worked out by
hand, on the real allocator."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.cuda

# Rows of 1024 floats: an activation of 256 rows has 1 MiB, a weight 4 MiB.
NET = """
import torch
from torch import nn
import memlab

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(1024, 1024, bias=False)
        self.down = nn.Linear(1024, 1024, bias=False)

    def forward(self, x):
        y = self.up(x)  # line: up
        y = torch.sin(y)  # line: sin
        left, right = y.split(512, 1)  # line: view
        y = torch.cat([right, left], 1)  # line: cat
        return self.down(y)  # line: down

torch.cuda.init()
snapshot = memlab.MemorySnapshot()
snapshot.start()
net = Net().cuda()  # line: build
optimizer = torch.optim.SGD(net.parameters(), momentum=0.9)
for step in range(2):
    x = torch.randn(256, 1024, device="cuda")  # line: input
    loss = net(x).sum()  # line: sum
    loss.backward()
    optimizer.step()  # line: step
    optimizer.zero_grad()
snapshot.stop()
snapshot.save("out.pickle")
"""


@pytest.fixture(scope="module")
def peak(tmp_path_factory, device_environment):
    folder = tmp_path_factory.mktemp("cause")
    (folder / "net.py").write_text(NET)
    for command in (["net.py"], ["-m", "memlab", "report", "out.pickle", "--json"]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder, env=device_environment, text=True, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    [device] = json.loads(done.stdout)["devices"]
    return device


def line(name):
    [number] = [
        i for i, text in enumerate(NET.splitlines(), 1) if f"# line: {name}" in text
    ]
    return number


def rows(peak, name, phase):
    return [
        row
        for row in peak["by_line"]
        if (row["line"], row["phase"]) == (line(name), phase)
    ]


def test_every_byte_has_a_line(peak):
    assert peak["unattributed_bytes"] == 0
    total = peak["peak"]["allocated_bytes"]
    assert sum(peak["by_how"].values()) == total
    assert sum(peak["by_phase"].values()) == total
    assert sum(row["bytes"] for row in peak["by_module"]) == total


def test_owners_and_phases(peak):
    mib = 1 << 20
    # Two weights, their momenta, made by the first step, and a gradient of each.
    assert peak["by_category"]["parameter"] == 8 * mib
    assert peak["by_category"]["optimizer_state"] == 8 * mib
    assert sum(row["bytes"] for row in rows(peak, "step", "optimizer")) == 8 * mib
    assert sum(row["bytes"] for row in rows(peak, "build", "other")) == 8 * mib
    [row] = rows(peak, "input", "other")
    assert row["by_category"] == {"input": mib}
    assert peak["step"] == 1


def test_backward_names_the_line_of_its_forward(peak):
    found = [row for row in peak["by_line"] if row["backward"]]
    assert found
    # The gradient that backward() begins with is made on the program's own thread.
    assert {row["how"] for row in found} <= {"frames", "node", "likely", "near"}
    exact = {row["line"] for row in found if row["how"] == "node"}
    assert exact <= {line(name) for name in ("up", "cat", "down", "sum")}
    likely = {row["line"] for row in found if row["how"] == "likely"}
    assert likely <= {line("sin")}
    gradients = [row for row in found if row["by_category"].get("gradient")]
    assert {row["line"] for row in gradients} <= {line("up"), line("down")}
