"""The fixture `memory`: what a block of a test allocates, against limits and baselines."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

MIB = 1 << 20

# Blocks of whole MiB of the scripted source, on any device it has.
HEAD = """
import pytest
from memlab import _core

MIB = 1 << 20
script = _core.Script()
place = [1 << 40]
live = {}

def alloc(name, mib, device=0):
    live[name] = (place[0], mib * MIB, device)
    place[0] += mib * MIB
    for action in ("segment_alloc", "alloc"):
        script.emit(action, *live[name][:2], device=device)

def free(name):
    addr, size, device = live.pop(name)
    for action in ("free_requested", "free_completed", "segment_free"):
        script.emit(action, addr, size, device=device)

@pytest.fixture(autouse=True)
def fresh():
    script.reset()
    live.clear()

"""


@pytest.fixture(autouse=True, scope="module")
def imported():
    """What a test imports in a run inside this one is forgotten with it, which torch does
    not bear and memlab pays for each time."""
    import memlab._testing.plugin  # noqa: F401

    if importlib.util.find_spec("torch"):
        import torch  # noqa: F401


@pytest.fixture
def run(pytester, monkeypatch):
    """run(tests, *options, head=HEAD): runs the text TESTS as a file of tests."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def start(tests, *options, head=HEAD, inside=True):
        pytester.makepyfile(test_it=head + tests)
        options = ("-p", "no:cacheprovider", "-p", "pytest_memlab", *options)
        if inside:
            return pytester.runpytest_inprocess(*options)
        return pytester.runpytest_subprocess(*options)

    return start


def test_limits_hold_or_name_the_lines(run):
    done = run(
        """
def test_within(memory):
    alloc("before", 50)
    with memory(max=6 * MIB, leaks=0, device="script") as used:
        alloc("a", 4)
        alloc("b", 2)
        free("a")
        free("b")
    assert (used.peak_bytes, used.leaked_bytes) == (6 * MIB, 0)

def test_above(memory):
    with memory(max="5.5 MiB", device="script"):
        alloc("a", 4)
        alloc("b", 2)
        free("a")

def test_leak(memory):
    with memory(leaks="1 KiB", device="script"):
        alloc("a", 4)
        alloc("b", 2)
        free("a")
"""
    )
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(
        [
            "*script:0: 6.00 MiB (6291456 bytes) at the peak, 5.50 MiB (5767168 bytes) "
            "allowed",
            "*lines that held them then:",
            "*6291456  bytes  2 blocks  test_it.py:* alloc    script.emit(action*",
            "*script:0: 2.00 MiB (2097152 bytes) left behind, 1.00 KiB (1024 bytes) allowed",
            "*lines that allocated them:",
            "*2097152  bytes  1 block  test_it.py:* alloc*",
        ]
    )


def test_what_was_there_before_is_no_use_and_no_leak(run):
    run(
        """
def test_it(memory):
    alloc("old", 8)
    with memory(device="script") as used:
        free("old")
        alloc("a", 6)
    assert (used.peak_bytes, used.leaked_bytes) == (0, 6 * MIB)
"""
    ).assert_outcomes(passed=1)


def test_blocks_nest_and_several_devices_count_each(run):
    done = run(
        """
def test_nested(memory):
    with memory(max="7 MiB", device="script") as outer:
        alloc("a", 3)
        with memory(leaks=0, max="4 MiB", device="script") as inner:
            alloc("b", 4)
            free("b")
    assert (outer.peak_bytes, inner.peak_bytes) == (7 * MIB, 4 * MIB)

def test_devices(memory):
    with memory(max="4 MiB", device="script"):
        alloc("a", 3, device=0)
        alloc("b", 5, device=1)
"""
    )
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*script:1: 5.00 MiB (5242880 bytes) at the peak*"])
    done.stdout.no_fnmatch_line("*script:0: *")


def test_an_exception_inside_counts_for_more_and_outcomes_stay(run):
    done = run(
        """
def test_error(memory):
    with pytest.raises(KeyError):
        with memory(max=0, leaks=0, device="script"):
            alloc("a", 1)
            raise KeyError("mine")
    with memory(max=MIB, device="script"):
        alloc("b", 1)

def test_skip(memory):
    with memory(max=0, device="script"):
        alloc("a", 1)
        pytest.skip("not here")

@pytest.mark.xfail(strict=True)
def test_xfail(memory):
    with memory(max=0, device="script"):
        alloc("a", 1)
"""
    )
    done.assert_outcomes(passed=1, skipped=1, xfailed=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('max="much"', "max: 'much' is not a size"),
        ("max=-1", "max: -1 is not a size"),
        ("leaks=True", "leaks: True is not a size"),
        ('tolerance="2 percent"', "tolerance: '2 percent' is not a size"),
        ('baseline=""', "baseline: '' is not a name"),
    ],
)
def test_what_makes_no_sense_is_refused(run, arguments, said):
    done = run(f"def test_it(memory):\n    memory({arguments}, device='script')\n")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([f"*ValueError: {said}*"])


BASELINE = """
@pytest.mark.parametrize("mib", [2, 3])
def test_it(memory, mib):
    with memory(baseline="step", tolerance=TOLERANCE, device="script"):
        alloc("a", mib)
        EXTRA
"""


def baseline(tolerance="0", extra="pass"):
    return BASELINE.replace("TOLERANCE", tolerance).replace("EXTRA", extra)


def test_a_baseline_is_written_when_asked_and_compared_with(run, pytester):
    missing = run(baseline())
    missing.assert_outcomes(failed=2)
    missing.stdout.fnmatch_lines(["*there is no baseline 'step' of this test in *.json:*"])
    file = pytester.path / "memory_baselines.json"
    assert not file.exists()

    written = run(baseline(), "--memory-update")
    written.assert_outcomes(passed=2)
    written.stdout.fnmatch_lines(["memory baselines: 2 in memory_baselines.json"])
    found = json.loads(file.read_text())
    assert found["version"] == 1
    entry = found["baselines"]["test_it.py::test_it[2]::step"]
    assert entry["devices"]["script:0"]["peak_bytes"] == 2 * MIB
    assert list(entry["devices"]["script:0"]["lines"].values()) == [2 * MIB]

    run(baseline()).assert_outcomes(passed=2)
    # Written anew with the same figures, it is the same file.
    before = file.read_bytes()
    run(baseline(), "--memory-update").assert_outcomes(passed=2)
    assert file.read_bytes() == before


def test_growth_names_the_lines_that_grew(run):
    head = HEAD + "\ndef other():\n    script.emit('alloc', 1 << 45, 1 << 20)\n"
    run(baseline(), "--memory-update", head=head)
    grown = run(baseline(extra="other()"), head=head)
    grown.assert_outcomes(failed=2)
    grown.stdout.fnmatch_lines(
        [
            "*script:0: 3.00 MiB (3145728 bytes) at the peak, 1048576 bytes more than the "
            "2.00 MiB (2097152 bytes) of baseline 'step'",
            "*lines that hold more than then, or less:",
            "*+1048576  bytes  test_it.py other: script.emit('alloc', 1 << 45, 1 << 20)",
        ]
    )
    run(baseline("'1 MiB'", "other()"), head=head).assert_outcomes(passed=2)
    # A third of 3 MiB is enough, a third of 2 MiB is not.
    run(baseline("'34 %'", "other()"), head=head).assert_outcomes(passed=1, failed=1)


def test_less_than_the_baseline_passes_and_is_told(run):
    run(baseline(extra="alloc('b', 1)"), "--memory-update")
    done = run(baseline())
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(
        [
            "memory baselines that are too high; pytest --memory-update lowers them:",
            "  test_it.py::test_it[[]2]::step: 2097152 bytes, the baseline has 3145728",
        ]
    )


@pytest.mark.parametrize("options", [(), ("--memory-update",)])
@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"version": 2}', '{"version": 1, "baselines": {"a": {}}}', "[" * 100_000],
    ids=lambda text: text[:40],
)
def test_a_file_that_is_none_of_baselines_is_refused(run, pytester, content, options):
    file = pytester.path / "memory_baselines.json"
    file.write_text(content)
    done = run(baseline(), *options)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["*is not a file of memory baselines*"])
    assert file.read_text() == content


def test_baselines_that_cannot_be_written_are_told_and_the_run_fails(run, pytester):
    spoil = "    __import__('pathlib').Path('memory_baselines.json').mkdir()\n"
    done = run(baseline() + f"\ndef test_last():\n{spoil}", "--memory-update")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["memory baselines not written: *memory_baselines.json*"])
    assert done.ret == 1


def test_the_baseline_of_another_torch_is_named(run, pytester):
    run(baseline(), "--memory-update")
    file = pytester.path / "memory_baselines.json"
    found = json.loads(file.read_text())
    for entry in found["baselines"].values():
        entry["torch"] = "1.0"
    file.write_text(json.dumps(found))
    done = run(baseline(extra="alloc('b', 1)"))
    done.stdout.fnmatch_lines(["*the baseline is of torch 1.0, here is *"])


def test_workers_of_xdist_leave_one_file(run, pytester):
    pytest.importorskip("xdist")
    done = run(baseline(), "-p", "xdist", "-n", "2", "--memory-update", inside=False)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["memory baselines: 2 in memory_baselines.json"])
    found = json.loads((pytester.path / "memory_baselines.json").read_text())
    assert len(found["baselines"]) == 2


def test_a_run_without_the_fixture_imports_neither_memlab_nor_torch(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n"
        "    assert not {'memlab', 'torch'} & sys.modules.keys()\n"
        "    assert 'pytest_memlab' in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "pytest_memlab", "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


CPU = """
import gc
import threading
import torch

def test_cpu(memory):
    kept = torch.zeros(1 << 20)
    with memory(device="cpu", leaks=0) as used:
        one = torch.zeros(1 << 18)
        worker = threading.Thread(target=lambda: torch.zeros(1 << 19))
        worker.start()
        worker.join()
        loop = [one]
        loop.append(loop)
        del one, loop
    assert used.peak_bytes == 3 << 20

def test_cpu_leak(memory):
    with memory(device="cpu", leaks=0):
        left = torch.zeros(1 << 18)
"""


def test_tensors_of_the_cpu_and_of_threads_count(run, torch):
    done = run(CPU, head="")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*cpu*: 1.00 MiB (1048576 bytes) left behind, 0 bytes allowed",
            "*1048576  bytes  1 block  test_it.py:* test_cpu_leak    left = torch.zeros*",
        ]
    )


CUDA = """
import os

os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
import pytest

test = '''
import torch

def train(memory):
    model = torch.nn.Linear(256, 256, device="cuda")
    with memory(baseline="b") as used:
        model(torch.ones(64, 256, device="cuda")).sum().backward()
    return used

def test_first(memory):
    # 64 x 256 floats in and out, 512 of the sum and its gradient, those of the model.
    assert train(memory).leaked_bytes == 256 * 256 * 4 + 256 * 4

def test_second(memory):
    assert train(memory).leaked_bytes == 256 * 256 * 4 + 256 * 4
'''
open("test_it.py", "w").write(test)
options = ["-q", "-p", "no:cacheprovider", "-p", "pytest_memlab", "test_it.py"]
assert pytest.main([*options, "--memory-update"]) == 0
import json
found = json.load(open("memory_baselines.json"))["baselines"]
peaks = {e["devices"]["cuda:0"]["peak_bytes"] for e in found.values()}
assert len(found) == 2 and len(peaks) == 1, found
"""


@pytest.mark.cuda
def test_on_a_gpu_the_first_test_has_what_the_others_have(phantom_run):
    phantom_run(CUDA)
