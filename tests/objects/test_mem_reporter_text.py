"""memlab.MemReporter prints what pytorch_memlab's README shows, example by example.

The programs are its programs.  What is not as there, and why:

- Where it lets the report say that 4096 x 1024 LSTM weights and an input are there before
  the input is made, the input is made first.
- torch keeps the Python object of a tensor that autograd saves, so that the intermediate of
  the "failed example" is seen today.
- The README gives no sums that are right for the LSTM; here they are worked out by hand.
- cuBLAS gets no workspace, as in the days of the README.
"""

import pytest

pytestmark = pytest.mark.cuda

LINE = "-" * 79
HEAD = (
    f"Element type                                            Size  Used MEM\n{LINE}\n"
)

PROGRAM = """
import gc, io, os, contextlib
gc.disable()  # a collection in the midst of .cuda() would change the order of parameters
os.environ["CUBLAS_WORKSPACE_CONFIG"], os.environ["CUBLASLT_WORKSPACE_SIZE"] = ":0:0", "0"
import torch
from memlab.compat.pytorch_memlab import MemReporter

def show(example):
    print("<example>", end="")
    example()
    gc.collect()
    assert torch.cuda.memory_allocated() == 0, torch.cuda.memory_allocated()

def minimal():
    linear = torch.nn.Linear(1024, 1024).cuda()
    reporter = MemReporter()
    reporter.report()

def backward():
    linear = torch.nn.Linear(1024, 1024).cuda()
    inp = torch.Tensor(512, 1024).cuda()
    # pass in a model to automatically infer the tensor names
    reporter = MemReporter(linear)
    out = linear(inp).mean()
    print('========= before backward =========')
    reporter.report()
    out.backward()
    print('========= after backward =========')
    reporter.report()

def tied():
    linear = torch.nn.Linear(1024, 1024).cuda()
    linear2 = torch.nn.Linear(1024, 1024).cuda()
    linear2.weight = linear.weight
    container = torch.nn.Sequential(
        linear, linear2
    )
    inp = torch.Tensor(512, 1024).cuda()
    # pass in a model to automatically infer the tensor names

    out = container(inp).mean()
    out.backward()

    # verbose shows how storage is shared across multiple Tensors
    reporter = MemReporter(container)
    reporter.report(verbose=True)

def lstm():
    lstm = torch.nn.LSTM(1024, 1024).cuda()
    reporter = MemReporter(lstm)
    inp = torch.Tensor(10, 10, 1024).cuda()
    reporter.report(verbose=True)
    out, _ = lstm(inp)
    out.mean().backward()
    reporter.report(verbose=True)

def failed():
    linear = torch.nn.Linear(1024, 1024).cuda()
    inp = torch.Tensor(512, 1024).cuda()
    # pass in a model to automatically infer the tensor names
    reporter = MemReporter(linear)
    out = linear(inp * (inp + 2)).mean()
    reporter.report(device=torch.device(0))

for example in minimal, backward, tied, lstm, failed:
    show(example)
"""

MINIMAL = f"""\
{HEAD}Storage on cuda:0
Parameter0                                      (1024, 1024)     4.00M
Parameter1                                           (1024,)     4.00K
{LINE}
Total Tensors: 1049600  Used Memory: 4.00M
The allocated memory on cuda:0: 4.00M
{LINE}
"""
BACKWARD = f"""\
========= before backward =========
{HEAD}Storage on cuda:0
weight                                          (1024, 1024)     4.00M
bias                                                 (1024,)     4.00K
Tensor0                                          (512, 1024)     2.00M
Tensor1                                                 (1,)   512.00B
{LINE}
Total Tensors: 1573889  Used Memory: 6.00M
The allocated memory on cuda:0: 6.00M
{LINE}
========= after backward =========
{HEAD}Storage on cuda:0
weight                                          (1024, 1024)     4.00M
weight.grad                                     (1024, 1024)     4.00M
bias                                                 (1024,)     4.00K
bias.grad                                            (1024,)     4.00K
Tensor0                                          (512, 1024)     2.00M
Tensor1                                                 (1,)   512.00B
{LINE}
Total Tensors: 2623489  Used Memory: 10.01M
The allocated memory on cuda:0: 10.01M
{LINE}
"""
TIED = f"""\
{HEAD}Storage on cuda:0
0.weight                                        (1024, 1024)     4.00M
0.weight.grad                                   (1024, 1024)     4.00M
0.bias                                               (1024,)     4.00K
0.bias.grad                                          (1024,)     4.00K
1.bias                                               (1024,)     4.00K
1.bias.grad                                          (1024,)     4.00K
Tensor0                                          (512, 1024)     2.00M
Tensor1                                                 (1,)   512.00B
{LINE}
Total Tensors: 2625537  Used Memory: 10.02M
The allocated memory on cuda:0: 10.02M
{LINE}
"""
# Weights of 4 x (2 * 4096 * 1024 + 2 * 4096) = 33,587,200 bytes in one storage, and an
# input of 4 x 102,400: 33,996,800.
LSTM = f"""\
{HEAD}Storage on cuda:0
weight_ih_l0                                    (4096, 1024)    32.03M
weight_hh_l0(->weight_ih_l0)                    (4096, 1024)     0.00B
bias_ih_l0(->weight_ih_l0)                           (4096,)     0.00B
bias_hh_l0(->weight_ih_l0)                           (4096,)     0.00B
Tensor0                                       (10, 10, 1024)   400.00K
{LINE}
Total Tensors: 8499200  Used Memory: 32.42M
The allocated memory on cuda:0: 32.42M
{LINE}
"""
# The gradients are as large, out as the input, h and c 40,960 bytes each: 68,075,520.
LSTM_AFTER = f"""\
{HEAD}Storage on cuda:0
weight_ih_l0                                    (4096, 1024)    32.03M
weight_ih_l0.grad                               (4096, 1024)    32.03M
weight_hh_l0(->weight_ih_l0)                    (4096, 1024)     0.00B
weight_hh_l0.grad(->weight_ih_l0.grad)          (4096, 1024)     0.00B
bias_ih_l0(->weight_ih_l0)                           (4096,)     0.00B
bias_ih_l0.grad(->weight_ih_l0.grad)                 (4096,)     0.00B
bias_hh_l0(->weight_ih_l0)                           (4096,)     0.00B
bias_hh_l0.grad(->weight_ih_l0.grad)                 (4096,)     0.00B
Tensor0                                       (10, 10, 1024)   400.00K
Tensor1                                       (10, 10, 1024)   400.00K
Tensor2                                        (1, 10, 1024)    40.00K
Tensor3                                        (1, 10, 1024)    40.00K
{LINE}
Total Tensors: 17018880         Used Memory: 64.92M
The allocated memory on cuda:0: 64.92M
{LINE}
"""
FAILED = f"""\
{HEAD}Storage on cuda:0
weight                                          (1024, 1024)     4.00M
bias                                                 (1024,)     4.00K
Tensor0                                          (512, 1024)     2.00M
Tensor1                                          (512, 1024)     2.00M
Tensor2                                                 (1,)   512.00B
{LINE}
Total Tensors: 2098177  Used Memory: 8.00M
The allocated memory on cuda:0: 8.00M
{LINE}
"""


def test_the_examples_of_the_readme(phantom_run):
    printed = phantom_run(PROGRAM).stdout
    # The README's tabs were expanded by the terminal from which it was copied.
    shown = printed.expandtabs(8).split("<example>")[1:]
    expected = [MINIMAL, BACKWARD, TIED, LSTM + LSTM_AFTER, FAILED]
    for text, wanted in zip(shown, expected, strict=True):
        assert text == wanted
    assert "Total Tensors: 1049600 \tUsed Memory: 4.00M\n" in printed


DIFFERENCE = """
import os
os.environ["CUBLAS_WORKSPACE_CONFIG"], os.environ["CUBLASLT_WORKSPACE_SIZE"] = ":0:0", "0"
import torch, memlab
x = torch.ones(256, 1024, device="cuda", requires_grad=True)
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.5)
with memlab.MemorySnapshot(source="cuda"):
    net = Net()  # after the recording has looked for names
    y = net(x)
    reporter = memlab.MemReporter()
    reporter.report(device="cuda")
del y
odd = torch.empty(1_000_003, device="cuda")
big = torch.empty(5_000_000, device="cuda")
del big
reporter.report(device=0)
for device in reporter.stats("cuda"):
    unheld = device["unheld"]
    print(device["used_bytes"] - unheld["outside_bytes"] + unheld["slack_bytes"]
          + unheld["unheld_bytes"] - torch.cuda.memory_allocated())
    print(unheld["allocated_bytes"] + unheld["cached_bytes"]
          + unheld["awaiting_free_bytes"] - torch.cuda.memory_reserved())
"""


def test_what_no_tensor_shows_is_explained_to_the_byte(phantom_run):
    """A mask of dropout, 256 x 1024 bytes, which autograd alone has, in a second segment of
    2 MiB: x and y, of 1 MiB each, fill the first."""
    lines = phantom_run(DIFFERENCE).stdout.splitlines()
    start = lines.index(
        "Memory differs due to the matrix alignment or invisible gradient buffer tensors"
    )
    assert lines[start - 1] == "The allocated memory on cuda:0: 2.25M"
    assert lines[start + 1 : start + 4] == [
        "Held by no tensor that Python sees:",
        "program.py:8 forward (Net)                           1 block   256.00K",
        "Reserved: 4.00M, of it cached: 1.75M, awaiting free: 0.00B",
    ]
    assert lines[-2:] == ["0", "0"]
