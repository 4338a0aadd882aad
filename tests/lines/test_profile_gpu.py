"""@profile and @profile_every on a CUDA device: figures, and what the program keeps of its own."""

import re

import pytest
from printed_tables import rows

TORCH = """
import sys, warnings
import torch
import memlab
columns = ("active_bytes.all.peak", "calls")
"""


@pytest.mark.cuda
def test_on_a_cuda_device(phantom_run):
    done = phantom_run(
        TORCH
        + """
@memlab.profile
class Nothing: pass

@memlab.profile(columns=columns)
def work():
    a = torch.empty(1 << 18, device="cuda")
    b = torch.empty(1 << 19, device="cuda")
    del a
    return b

class Net(torch.nn.Module):
    @memlab.profile(columns=columns)
    @torch.no_grad()
    def forward(self, x):
        return x + 1

memlab.set_target_gpu(torch.device("cuda"))
assert not torch.cuda.is_initialized()
work()
memlab.set_target_gpu(torch.device("cuda:0"))
Net()(torch.empty(1 << 18, device="cuda"))
torch.cuda.reset_peak_memory_stats()
peak = torch.cuda.max_memory_allocated()
work()
assert torch.cuda.max_memory_allocated() == peak + (3 << 20)
"""
    )
    table = rows(done.stdout, "work")
    assert table['a = torch.empty(1 << 18, device="cuda")'] == ["1.00M", "2"]
    assert table['b = torch.empty(1 << 19, device="cuda")'] == ["3.00M", "2"]
    assert table["del a"] == ["3.00M", "2"]
    assert table["return b"] == ["2.00M", "2"]
    assert rows(done.stdout, "Net.forward")["return x + 1"] == ["2.00M", "1"]
    assert "no GPU" not in done.stdout


def own(stderr):
    """What the program said: not the phantom device's notice."""
    return re.sub(r"memlab phantom: .*\n", "", stderr)


@pytest.mark.cuda
def test_torchs_statistics_and_cache_are_as_without(phantom_run):
    """Every field of memory_stats(): nothing is reset, counted twice, given back or taken."""
    program = """
import json, torch, memlab
def work():
    a = torch.empty(1 << 20, device="cuda")
    b = torch.empty(1 << 23, device="cuda")
    del a, b
    return torch.empty(300, device="cuda")
work()
profiler = memlab.LineProfiler(work)
{before}
for _ in range(3):
    kept = work()
{after}
print(json.dumps(torch.cuda.memory_stats()))
"""
    alone = phantom_run(program.format(before="", after="")).stdout
    assert '"reserved_bytes.all.current": 0' not in alone
    beside = program.format(
        before="profiler.enable()",
        after="profiler.disable(); assert 'torch.empty(300' in str(profiler.display())",
    )
    assert phantom_run(beside).stdout == alone


@pytest.mark.cuda
def test_memory_on_another_gpu_than_the_one_that_is_profiled(phantom_run):
    done = phantom_run(
        """
import torch, memlab
def work():
    return torch.empty(1 << 20, dtype=torch.uint8, device="cuda:1")
for gpu in 0, 1:
    with memlab.LineProfiler(work, target_gpu=gpu) as profiler:
        kept = work()
    profiler.print_stats()
""",
        env={"MEMLAB_PHANTOM_DEVICES": "2"},
    )
    first, second = done.stdout.split("## work")[1:]
    assert first.endswith(
        "\n\nwhile lines were profiled, nothing was allocated on cuda:0, but on cuda:1: profile "
        "that GPU, by target_gpu=1, set_target_gpu(1) or memlab lines -g 1\n"
    )
    assert "2.00M" in second and "nothing was allocated" not in second


@pytest.mark.cuda
def test_a_gpu_that_is_not_there(phantom_run, torch):
    """An error where it is known; before CUDA begins nobody asks, and the table says it."""
    absent = 77
    done = phantom_run(
        TORCH
        + f"""
memlab.set_target_gpu({absent})

@memlab.profile(columns="calls")
def work():
    torch.empty(512, device="cuda")

early = memlab.LineProfiler(work, target_gpu={absent})
with early:
    work()
early.print_stats(columns=columns)
wrong = [
    lambda: memlab.LineProfiler(work, target_gpu={absent}),
    lambda: early.enable(),
    lambda: setattr(early, "target_gpu", torch.device("cuda:{absent}")),
    lambda: memlab.set_target_gpu("cuda:{absent}"),
]
for call in wrong:
    try:
        call()
        print("NO ERROR")
    except ValueError as error:
        print("ERROR", error)

@memlab.profile_every(1)
def often():
    print("RAN")
often()
"""
    )
    said = f"there is no cuda:{absent}, torch sees "
    early, late = done.stdout.split("ERROR", 1)
    assert rows(early, "work")['torch.empty(512, device="cuda")'] == ["0.00B", "1"]
    assert re.search(rf"\n\n{said}\d+: these figures show no memory\n", early)
    assert done.stdout.count(f"ERROR {said}") == 4 and "NO ERROR" not in late
    # A decorator does not keep the program from running.
    assert "RAN\n" in late and "## often" not in late
    assert f"RuntimeWarning: memlab: lines are not profiled: {said}" in done.stderr


@pytest.mark.cuda
def test_import_has_no_side_effect(phantom_run):
    done = phantom_run(
        """
import sys, threading
import torch
torch.empty(1 << 20, device="cuda")
before = torch.cuda.memory_stats()
trace, hook = sys.gettrace(), threading.gettrace()
import memlab, memlab.compat.pytorch_memlab
assert torch.cuda.memory_stats() == before
assert (sys.gettrace(), threading.gettrace()) == (trace, hook)
monitoring = getattr(sys, "monitoring", None)
assert monitoring is None or not any(map(monitoring.get_tool, range(6)))
"""
    )
    assert (done.stdout, own(done.stderr)) == ("", "")
    done = phantom_run(
        """
import memlab
import memlab.compat.pytorch_memlab
import sys
assert "torch" not in sys.modules or not sys.modules["torch"].cuda.is_initialized()
"""
    )
    assert (done.stdout, own(done.stderr)) == ("", "")
