"""A method called forward that the program calls itself is no torch.autograd.Function's: a
package's Function that allocates nothing in its forward has its backward elsewhere."""

import json

import pytest
import warm

pytestmark = pytest.mark.usefixtures("torch")

PACKAGE = """
import torch

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2

class Thrice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3
"""

# In the second backward the gradient that OP made is live: 4 MiB.
PROGRAM = """
import json, sys
import torch
sys.path.insert(0, sys.argv[3])
import ops
import memlab

DEVICE, OP = sys.argv[1:3]
if DEVICE == "cuda":
    torch.cuda.init()

class Noise(torch.nn.Module):
    def forward(self, x):
        noise = torch.ones(1024, 1024, device=DEVICE)  # line: noise
        return x + noise

def probe(_):
    torch.empty(1 << 28, dtype=torch.uint8, device=DEVICE)

noise = Noise()
weight = torch.ones(1024, 1024, device=DEVICE, requires_grad=True)
with memlab.MemorySnapshot(device=DEVICE) as snapshot:
    for step in range(2):
        x = weight + 1  # line: before
        x.register_hook(probe)
        y = getattr(ops, OP).apply(x)  # line: apply
        z = noise.forward(y)
        z.sum().backward()
        weight.grad = None
rows = [
    [row["line"], row["how"]]
    for row in snapshot.peak()["by_line"]
    if row["phase"] == "backward" and 4 << 20 in row["by_category"].values()
]
print(json.dumps(rows))
"""


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
)
@pytest.mark.parametrize(
    ("op", "line", "how"), [("Twice", "before", "near"), ("Thrice", "apply", "node")]
)
def test_the_line_of_a_packages_backward(request, tmp_path, device, op, line, how):
    environment = None
    if device == "cuda":
        environment = request.getfixturevalue("device_environment")
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "ops.py").write_text(PACKAGE)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = warm.run(program, device, op, packages, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    numbered = enumerate(PROGRAM.splitlines(), 1)
    number = next(number for number, text in numbered if f"# line: {line}" in text)
    assert json.loads(done.stdout.splitlines()[-1]) == [[number, how]]
