"""Scripts written for pytorch_memlab, with one import line changed."""

import re
import subprocess
import sys
import types

import pytest
from cuda_here import has_gpu

import memlab
import memlab.compat.pytorch_memlab

IMPORT = """\
from memlab.compat.pytorch_memlab import (
    LineProfiler, clear_global_line_profiler, profile, profile_every, set_target_gpu,
)
import torch
"""


def tables(text):
    """The tables in TEXT: [(title, {code: [figures]})]."""
    found = []
    for part in text.split("## ")[1:]:
        title, *lines = part.split("\n")
        rows = {}
        for line in lines:
            match = re.fullmatch(
                r" +([\d.]+[BKMG]) +([\d.]+[BKMG]) +\d+ +(.*?) *", line
            )
            if match:
                rows[match[3]] = [match[1], match[2]]
        found.append((title, rows))
    return found


LAYER = "torch.nn.Linear(100, 100)"  # 40,000 bytes in 40,448, and 512: 40 KiB


@pytest.mark.cuda
def test_a_profiler_in_both_forms(phantom_run):
    program = f"""{IMPORT}
def lower():
    a = {LAYER}.cuda()

def upper():
    # a comment
    a = {LAYER}.cuda()
    b = {LAYER}.cuda()
    lower()

def unwatched():
    {LAYER}.cuda()
    upper()

with LineProfiler(lower, upper) as profiler:
    unwatched()
text = str(profiler.display())
print(text)

again = LineProfiler(lower)
again.add_function(upper)
again.enable()
unwatched()
again.disable()
unwatched()
again.print_stats()
again.clear()
again.print_stats()
"""
    shown = phantom_run(program).stdout
    assert [title for title, _ in tables(shown)] == ["lower", "upper"] * 2
    for title, rows in tables(shown):
        peaks = [peak for peak, _ in rows.values()]
        if title == "lower":
            assert peaks == ["80.00K", "120.00K"]
        else:
            assert peaks == ["0.00B", "40.00K", "80.00K", "120.00K"]
    assert shown.endswith("No data collected\n")
    assert "# a comment" in shown


@pytest.mark.cuda
def test_decorated_functions_and_methods(phantom_run):
    """Three calls: `work` is shown after the third, `each` after each of its one, `forward`
    after its own, and what @profile is on when the program ends, by Ctrl-C."""
    program = f"""{IMPORT}
clear_global_line_profiler()

@profile_every(output_interval=3)
def work():
    a = {LAYER}.cuda()

@profile_every(1)
def each():
    a = {LAYER}.cuda()
    b = {LAYER}.cuda()

@profile_every(1, enable=False)
def never():
    a = {LAYER}.cuda()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.1)

    @profile_every(1, columns=("allocated_bytes.all.current", "active_bytes.all.peak"))
    def forward(self, x):
        return self.drop(x)

@profile
def end(count):
    a = [{LAYER}.cuda() for _ in range(count)]

work(), each(), never(), work(), work()
x = torch.empty(50, 100, device="cuda")
Net()(x)
end(1)
end(3)
end(2)
raise KeyboardInterrupt
"""
    done = phantom_run(program, check=False)
    assert done.returncode == -2 and done.stderr.endswith("KeyboardInterrupt\n")
    shown = tables(done.stdout)
    assert [title for title, _ in shown] == ["each", "work", "Net.forward", "end"]
    each, work, forward, end = (rows for _, rows in shown)
    assert each[f"b = {LAYER}.cuda()"] == ["80.00K", "2.00M"]
    assert work[f"a = {LAYER}.cuda()"] == ["40.00K", "2.00M"]
    # 20,000 bytes in 40 blocks of 512; dropout has as many again, and for a while a mask of
    # 5,000 in 10.
    assert forward["def forward(self, x):"] == ["20.00K", "20.00K"]
    assert forward["return self.drop(x)"] == ["40.00K", "45.00K"]
    # Of three calls the largest; x is there as well.
    assert end[f"a = [{LAYER}.cuda() for _ in range(count)]"] == ["140.00K", "2.00M"]


@pytest.mark.cuda
def test_the_gpu_is_chosen_in_profiled_code(phantom_run, torch):
    if has_gpu() and torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    program = f"""{IMPORT}
@profile
def work():
    set_target_gpu(1)
    a = {LAYER}.cuda(1)
    set_target_gpu(torch.device("cuda:0"))
    b = {LAYER}.cuda(0)
    c = {LAYER}.cuda(1)

work()
"""
    [(_, rows)] = tables(
        phantom_run(program, env={"MEMLAB_PHANTOM_DEVICES": "2"}).stdout
    )
    peaks = {code: peak for code, (peak, _) in rows.items() if "Linear" in code}
    assert list(peaks.values()) == ["40.00K", "40.00K", "40.00K"]


def test_every_name_is_answered():
    import memlab.compat.pytorch_memlab as compat

    assert not hasattr(compat, "nothing")
    assert set(compat.__all__) == {
        "Courtesy",
        "LineProfiler",
        "MemReporter",
        "clear_global_line_profiler",
        "load_ipython_extension",
        "profile",
        "profile_every",
        "provide",
        "set_target_gpu",
    }
    # The profiler has what other code reads of it, and provide() is for this package.
    assert issubclass(compat.LineProfiler, memlab.LineProfiler)
    for name in set(compat.__all__) - {"LineProfiler", "provide"}:
        assert getattr(compat, name) is getattr(memlab, name)


# As torch_geometric.profile does it, of which `profileit` measures a model's forward.
THIRD_PARTY = """
def read_from_memlab(line_profiler):
    from pytorch_memlab.line_profiler.line_records import LineRecords
    stats = ["allocated_bytes.all.peak", "reserved_bytes.all.peak", "active_bytes.all.peak"]
    records = LineRecords(line_profiler._raw_line_records, line_profiler._code_infos)
    found = records.display(None, stats)._line_records
    return [x / 1024 for x in found.values.max(axis=0).tolist()]

def profileit(func):
    def wrapper(model):
        from pytorch_memlab import LineProfiler
        profiler = LineProfiler(target_gpu=0)
        profiler.enable()
        profiler.add_function(type(model).forward)
        func(model)
        profiler.disable()
        return read_from_memlab(profiler), profiler.display()
    return wrapper

class Model(torch.nn.Module):
    def forward(self):
        a = torch.empty(40 * 1024, dtype=torch.uint8, device="cuda")
        return torch.empty(8 * 1024, dtype=torch.uint8, device="cuda")

figures, tables = profileit(lambda model: model())(Model())
print(figures)
assert "## Model.forward" in str(tables)
"""


@pytest.mark.cuda
def test_others_that_import_pytorch_memlab(phantom_run):
    provide = "import memlab.compat.pytorch_memlab as it, torch\nit.provide()\n"
    assert phantom_run(provide + THIRD_PARTY).stdout == "[48.0, 2048.0, 48.0]\n"


def test_the_modules_are_pytorch_memlabs():
    program = """
import memlab.compat.pytorch_memlab as it
it.provide()
it.provide()
import pytorch_memlab, pytorch_memlab.courtesy, pytorch_memlab.mem_reporter, memlab
from pytorch_memlab.line_profiler import LineProfiler, profile, profile_every
from pytorch_memlab.line_profiler.line_profiler import DEFAULT_COLUMNS
from pytorch_memlab.line_profiler.profile import clear_global_line_profiler
from pytorch_memlab.line_profiler.line_records import RecordsDisplay
from pytorch_memlab.utils import readable_size
assert readable_size(1536) == "1.50K"
assert pytorch_memlab is it and issubclass(LineProfiler, memlab.LineProfiler)
assert pytorch_memlab.courtesy.Courtesy is memlab.Courtesy
assert pytorch_memlab.mem_reporter.MemReporter is memlab.MemReporter
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_original_stays_where_it_is_imported(monkeypatch):
    original = types.ModuleType("pytorch_memlab")
    original.__file__ = "/elsewhere/pytorch_memlab/__init__.py"
    monkeypatch.setitem(sys.modules, "pytorch_memlab", original)
    with pytest.raises(memlab.Error, match="imported already, from /elsewhere/pytorch"):
        memlab.compat.pytorch_memlab.provide()
    assert sys.modules["pytorch_memlab"] is original
