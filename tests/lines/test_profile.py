"""@profile and @profile_every in programs of their own: what they print, and when.

The programs take memory by script, so that they run without torch; those that need torch
run on its host memory.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import scripted_lines
from printed_tables import rows

import memlab
from memlab._native import devices

PRELUDE = """
import asyncio, functools, os, sys, threading, warnings
import memlab
from scripted_lines import Memory
m = Memory()
memlab.set_target_gpu("script")
columns = ("active_bytes.all.peak", "calls")
"""
PATHS = [Path(memlab.__file__).parents[1], Path(scripted_lines.__file__).parent]


@pytest.fixture
def run(tmp_path):
    """run(source, check=0): a program after the prelude; (standard output, error)."""

    def run(source, *, prelude=PRELUDE, status=0, **options):
        path = tmp_path / "program.py"
        path.write_text(prelude + source)
        done = subprocess.run(
            [sys.executable, str(path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS))},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            **options,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout, done.stderr

    return run


WORK = """
@memlab.profile(columns=columns)
def work(size=3):
    m.spike(size)
"""


def test_a_table_at_exit_with_the_largest_of_all_calls(run):
    out, err = run(WORK + "work(1); work(5); work(2); print('end')")
    assert out.startswith("end\n## work\n") and out.count("##") == 1
    assert rows(out, "work")["m.spike(size)"] == ["5.00M", "3"]
    assert err == ""


@pytest.mark.parametrize(
    "end, status, last",
    [
        ("raise ValueError('mine')", 1, "ValueError: mine"),
        ("sys.exit(7)", 7, ""),
        ("import signal; signal.raise_signal(signal.SIGINT)", -2, "KeyboardInterrupt"),
    ],
)
def test_a_table_however_the_program_ends(run, end, status, last):
    out, err = run(WORK + f"work()\n{end}", status=status)
    assert rows(out, "work")["m.spike(size)"] == ["3.00M", "1"]
    assert err.strip().endswith(last) and "memlab" not in err


def test_an_exception_of_the_function_itself(run):
    out, _ = run(
        """
@memlab.profile(columns=columns)
def work():
    m.spike(2)
    raise KeyError
try:
    work()
except KeyError:
    m.spike(50)
"""
    )
    assert rows(out, "work") == {
        "def work():": ["0.00B", "1"],
        "m.spike(2)": ["2.00M", "1"],
        "raise KeyError": ["0.00B", "1"],
    }


def test_what_never_ran_is_named_in_a_line(run):
    out, err = run(WORK + "@memlab.profile\ndef idle(): pass\nwork()\n")
    assert out.count("##") == 1
    assert out.endswith("memlab: profiled but never called: idle\n")
    assert err == ""


def test_a_forked_child_prints_nothing(run):
    out, err = run(
        WORK
        + """
@memlab.profile_every(1)
def often(): m.spike(1)
work()
child = os.fork()
if child == 0:
    work(9)
    often()
    sys.exit(0)
os.waitpid(child, 0)
"""
    )
    assert out.count("## work") == 1 and "## often" not in out
    assert rows(out, "work")["m.spike(size)"] == ["3.00M", "1"]
    assert err == ""


def test_methods_decorators_and_decorating_twice(run):
    out, err = run(
        """
def wrap(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner

class Net:
    @memlab.profile(columns=columns)
    def forward(self):
        m.spike(2)
    @memlab.profile(columns=columns)
    @classmethod
    def make(cls):
        m.spike(3)
    @memlab.profile(columns=columns)
    @wrap
    def wrapped(self):
        m.spike(4)
    @staticmethod
    @memlab.profile(columns=columns)
    def static():
        m.spike(5)
    @memlab.profile(columns=columns)
    @property
    def value(self):
        m.spike(6)
memlab.profile(Net.forward, columns=columns)
memlab.profile(Net.forward, "delta")
net = Net()
net.forward(), net.make(), net.wrapped(), net.static(), net.value
"""
    )
    # co_qualname is new in 3.11; before, an object's own name is all that there is.
    long = sys.version_info >= (3, 11)
    names = ["Net.make", "Net.wrapped", "Net.static", "Net.value" if long else "value"]
    for name, size in zip(names, (3, 4, 5, 6)):
        assert rows(out, name)[f"m.spike({size})"] == [f"{size}.00M", "1"]
    assert out.count("## Net.forward\n") == 2
    assert err == ""


def test_generators_and_coroutines(run):
    out, _ = run(
        """
@memlab.profile(columns=columns)
def items():
    m.spike(2)
    yield 1
    m.spike(4)

@memlab.profile(columns=columns)
async def main():
    await asyncio.sleep(0)
    m.spike(3)
for _ in items():
    m.spike(40)
asyncio.run(main())
"""
    )
    assert rows(out, "items")["m.spike(4)"] == ["4.00M", "1"]
    assert rows(out, "items")["yield 1"] == ["0.00B", "1"]
    assert rows(out, "main")["m.spike(3)"] == ["3.00M", "1"]


def test_a_class_is_left_with_a_warning(run):
    out, err = run(
        """
@memlab.profile
class Net:
    pass
@memlab.profile_every(1)
class Other:
    pass
Net(), Other()
"""
    )
    assert out == ""
    # Each names the line of the decorator, in the program.
    assert err.count("Could not extract a code object for the object") == 2
    assert err.count("program.py:") == 2 and "memlab/_lines" not in err


@pytest.mark.parametrize(
    "stdout", ["None", "os.fdopen(writer, 'w', buffering=1)"], ids=["none", "reader left"]
)
def test_a_program_whose_output_nobody_reads_hears_nothing(run, stdout):
    """As of print(), and of `train.py | head`."""
    out, err = run(
        f"""
{WORK}
work()
reader, writer = os.pipe()
os.close(reader)
sys.stdout = {stdout}
"""
    )
    assert (out, err) == ("", "")


def test_no_stdout_is_no_error():
    pytest.importorskip("torch", reason="torch is not installed")
    done = subprocess.run(
        [sys.executable, "-c", "import memlab; memlab.LineProfiler().print_stats()"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS))},
        preexec_fn=lambda: os.close(1),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_third_of_seven_calls(run):
    out, _ = run(
        """
@memlab.profile_every(3, columns=columns)
def work(size):
    m.spike(size)
    if size == 2:
        raise KeyError
for size in (9, 1, 1, 4, 2, 1, 8):
    try:
        print("call", work(size))
    except KeyError:
        print("raised")
"""
    )
    first, second, rest = re.split(r"^## work\n", out, flags=re.M)
    assert first.count("call None") == 2
    assert rows("## work\n" + second, "work")["m.spike(size)"] == ["9.00M", "3"]
    # The first three are forgotten, and the one that raised counts.
    assert rows("## work\n" + rest, "work")["m.spike(size)"] == ["4.00M", "3"]
    assert rest.count("call None") == 2


def test_disabled_it_is_the_function_itself():
    def work():
        pass

    assert memlab.profile_every(1, enable=False)(work) is work


@pytest.mark.parametrize("interval, error", [(0, ValueError), (len, TypeError)])
def test_an_interval_that_is_none(interval, error):
    with pytest.raises(error):
        memlab.profile_every(interval)


def test_columns_that_there_are_not():
    with pytest.raises(ValueError, match="is not a column"):
        memlab.profile(columns=("nonsense",))(len)
    with pytest.raises(ValueError, match="is not a column"):
        memlab.profile_every(1, columns="nonsense")
    with pytest.raises(ValueError, match="no column to show. There are delta, calls"):
        memlab.profile(columns=())(len)


def test_inner_calls_count_and_the_table_waits_for_the_outer_one(run):
    out, _ = run(
        """
@memlab.profile_every(2, columns=columns)
def work(depth):
    kept = m.alloc(1)
    if depth:
        work(depth - 1)
    m.free(kept)
work(4)
print("one")
work(0)
print("two")
"""
    )
    first, second = out.split("one\n")
    assert first.count("##") == 1 and second.count("##") == 1
    assert rows(first, "work")["kept = m.alloc(1)"] == ["5.00M", "5"]
    assert rows(first, "work")["work(depth - 1)"] == ["5.00M", "4"]
    assert rows(second, "work")["kept = m.alloc(1)"] == ["1.00M", "1"]


def test_every_kind_of_function_every_time(run):
    out, err = run(
        """
import inspect
every = functools.partial(memlab.profile_every, 1, columns=columns)

@every()
def items():
    m.spike(1)
    got = yield 1
    m.spike(got)
    return 7

def outer():
    print("got", (yield from items()))

generator = outer()
next(generator)
try:
    generator.send(2)
except StopIteration:
    pass
assert inspect.isgeneratorfunction(items)

@every()
async def wait():
    await asyncio.sleep(0)
    m.spike(3)

@every()
async def stream():
    try:
        got = yield 1
        m.spike(got)
        yield 2
    except KeyError:
        m.spike(5)
        yield 3

async def main():
    await asyncio.gather(wait(), wait())
    items = stream()
    print(await items.asend(None), await items.asend(4), await items.athrow(KeyError))
    await items.aclose()
    async for item in stream():
        break
    await items.aclose()
asyncio.run(main())
assert inspect.isasyncgenfunction(stream) and inspect.iscoroutinefunction(wait)

class Class:
    @every()
    @staticmethod
    def static():
        m.spike(6)
    @every()
    @classmethod
    def make(cls):
        m.spike(7)
        return cls
    @every()
    @property
    def value(self):
        m.spike(8)
        return 8
Class.static()
assert Class.make() is Class and Class().make() is Class and Class().value == 8
"""
    )
    assert rows(out, "items")["m.spike(got)"] == ["2.00M", "1"]
    assert "got 7" in out and "1 2 3" in out
    assert out.count("## wait\n") == 2
    assert rows(out, "stream")["m.spike(got)"] == ["4.00M", "1"]
    assert rows(out, "stream")["m.spike(5)"] == ["5.00M", "1"]
    assert rows(out, "Class.static")["m.spike(6)"] == ["6.00M", "1"]
    assert out.count("## Class.make\n") == 2
    assert rows(out, "Class.value")["m.spike(8)"] == ["8.00M", "1"]
    assert err == ""


def test_both_on_one_function(run):
    out, _ = run(
        """
@memlab.profile(columns=columns)
@memlab.profile_every(2, columns=columns)
def work(size):
    m.spike(size)
work(5), work(1), work(2)
print("end")
"""
    )
    before, after = out.split("end\n")
    assert rows(before, "work")["m.spike(size)"] == ["5.00M", "2"]
    assert rows(after, "work")["m.spike(size)"] == ["5.00M", "3"]


def test_threads(run):
    out, err = run(
        """
@memlab.profile(columns=columns)
@memlab.profile_every(4, columns=columns)
def work(size):
    m.spike(size)
for size in (1, 2, 3, 4):
    thread = threading.Thread(target=work, args=(size,))
    thread.start()
    thread.join()
"""
    )
    assert out.count("## work\n") == 2 and err == ""
    assert rows(out, "work")["m.spike(size)"] == ["4.00M", "4"]


def test_the_target_before_within_and_after(run):
    out, _ = run(
        """
from memlab import _core
script = _core.Script()
script.emit("segment_alloc", 1 << 50, 64 << 20, device=1)
script.emit("alloc", 1 << 50, 64 << 20, device=1)

@memlab.profile(columns=columns)
def work():
    m.spike(1)
    memlab.set_target_gpu("script:1")
    m.spike(2)
    memlab.set_target_gpu("script:0")
    m.spike(3)

@memlab.profile_every(1, columns=columns)
def often():
    m.spike(4)
work()
memlab.set_target_gpu("script:1")
often()
try:
    memlab.set_target_gpu("nonsense")
except ValueError as error:
    print(error)
"""
    )
    assert rows(out, "work")["m.spike(1)"] == ["1.00M", "1"]
    assert rows(out, "work")["m.spike(2)"] == ["64.00M", "1"]
    assert rows(out, "work")["m.spike(3)"] == ["3.00M", "1"]
    assert rows(out, "often")["m.spike(4)"] == ["64.00M", "1"]
    assert "'nonsense' is not a device" in out


def test_cleared(run):
    out, err = run(WORK + "work()\nmemlab.clear_global_line_profiler()\nwork()")
    assert out == err == ""


def test_a_program_runs_on_where_memlab_cannot_profile(run):
    out, err = run(
        """
from memlab._native import sources
sources.ensure = lambda name: 1 / 0
@memlab.profile
def one(): return 1
@memlab.profile
@memlab.profile_every(1)
def two(): return 2
print(one() + two())
"""
    )
    assert out == "3\n"
    assert err.count("RuntimeWarning: memlab: lines are not profiled: division") == 1


def test_a_closed_output_is_said_and_no_more(run):
    out, err = run(
        """
@memlab.profile
@memlab.profile_every(1)
def work(): m.spike(1)
sys.stdout.close()
work()
"""
    )
    assert out == ""
    assert err.count("memlab: line tables could not be shown: I/O operation") == 2
    assert "Traceback" not in err


def test_a_subprocess_after_an_interrupt_from_outside(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        PRELUDE + WORK + "work()\nprint('ready', flush=True)\nthreading.Event().wait()"
    )
    process = subprocess.Popen(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert rows(out, "work")["m.spike(size)"] == ["3.00M", "1"]
    assert "KeyboardInterrupt" in err


TORCH = """
import sys, warnings
import torch
import memlab
columns = ("active_bytes.all.peak", "calls")
"""


def test_without_a_gpu_the_host_memory_is_shown_and_said(run, torch):
    if torch.version.cuda is not None and devices.gpu_present():
        pytest.skip("there is a GPU here")
    out, err = run(
        """
@memlab.profile(columns=columns)
@memlab.profile_every(1, columns=columns)
@torch.no_grad()
def work():
    return torch.ones(1 << 18)
work()
""",
        prelude=TORCH,
    )
    # With the table of each decorator.
    assert out.count("\nno GPU here: these are bytes of torch's host memory\n") == 2
    assert err == ""
    calls = [rows(text, "work") for text in ("##" + t for t in out.split("##")[1:])]
    assert len(calls) == 2
    for table in calls:
        size, count = table["return torch.ones(1 << 18)"]
        assert (float(size[:-1]) >= 1, size[-1], count) == (True, "M", "1")


def test_workers_of_a_loader_print_nothing(run, torch):
    out, err = run(
        """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    @memlab.profile
    @memlab.profile_every(1)
    def __getitem__(self, index):
        return torch.ones(3) * index
for method in ("fork", "spawn"):
    if __name__ == "__main__":
        loader = torch.utils.data.DataLoader(
            Data(), num_workers=1, multiprocessing_context=method)
        print(sum(batch.sum().item() for batch in loader))
""",
        prelude=TORCH + "memlab.set_target_gpu('cpu')\n",
    )
    assert out.startswith("18.0\n18.0\n") and "##" not in out
    assert out.endswith("memlab: profiled but never called: Data.__getitem__\n")
