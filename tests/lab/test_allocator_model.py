"""The model of torch's caching allocator against the real one, on the phantom device.

Random programs run on torch's own allocator; helpers/allocator_checker.c gives the same
requests to the model and compares every event and address, the segments and blocks at the
end, and torch's statistics.  Whichever torch runs the tests is the one compared with.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount, seed

HERE = Path(__file__).resolve().parents[1]
CORE = HERE.parent / "csrc" / "core"
PROGRAMS = Path(__file__).with_name("allocator_programs.py")

#: What the model is made of, and what that needs of the core.
SOURCES = [
    *sorted(CORE.glob("lab/simulator/allocator*.c")),
    *(CORE / f"base/{name}.c" for name in ("base", "system/region")),
    *sorted(CORE.glob("ledger/*.c")),
    CORE / "gpu" / "placement.c",
    CORE / "compare" / "ranks" / "align.c",
]

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """A function that runs the checker on a file and returns what it ended as."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler: {compiler[0]} not found")
    program = tmp_path_factory.mktemp("checker") / "allocator_checker"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", f"-I{CORE}"]
    helpers = [HERE / "helpers" / f"allocator_{part}.c" for part in ("checker", "trace")]
    subprocess.run([*compiler, *flags, *helpers, *SOURCES, "-o", program], check=True)

    def run(file):
        return subprocess.run([program, file], capture_output=True, text=True)

    return run


def run_programs(file, *arguments):
    """Runs programs on a phantom device of 8 GiB, also where there is a GPU: how much
    memory there is and where it lies decides what happens."""
    from memlab import phantom

    environment = {**os.environ, **phantom.environment(memory=8 << 30)}
    command = [sys.executable, PROGRAMS, file, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    print(done.stderr.splitlines()[-1])


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The lines of a few programs that ran."""
    file = tmp_path_factory.mktemp("few") / "programs.txt"
    run_programs(file, "--events", 3_000, "--seed", 7)
    return file.read_text().splitlines()


@pytest.mark.nightly
def test_model_does_what_torch_does(check, tmp_path):
    file = tmp_path / "programs.txt"
    events = amount("MODEL_EVENTS", 100_000)
    number = seed("MODEL", events > 100_000)
    run_programs(file, "--events", events, "--seed", number)
    done = check(file)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    programs, compared, reordered, differ = last_numbers(done)
    assert differ == 0
    assert compared >= events
    # Only programs of several streams or pools have events in another order.
    assert reordered < compared / 200


def last_numbers(done):
    words = done.stdout.splitlines()[-1].split()
    return [int(word) for word in words if word.isdigit()]


def first(lines, start, position=0):
    """The index of a line that begins with START."""
    return [i for i, line in enumerate(lines) if line.startswith(start)][position]


def with_word(line, index, change):
    words = line.split()
    words[index] = str(change(int(words[index])))
    return " ".join(words)


@pytest.mark.parametrize(
    ("start", "word", "change", "said"),
    [
        ("event alloc", 2, lambda addr: addr + 512, "torch alloc"),
        ("event free_completed", 3, lambda size: size + 1, "torch free_completed"),
        ("event segment_", 4, lambda stream: stream + 8, "torch segment_"),
        ("malloc", 2, lambda size: size * 2 + 4096, "request"),
        ("segment", 2, lambda total: total + 512, "torch's segment"),
        ("block", 2, lambda size: size - 512, "torch's block"),
        ("statistic num_ooms", 2, lambda ooms: ooms + 1, "torch's num_ooms"),
        ("statistic reserved_bytes.all.peak", 2, lambda peak: peak - 1, "reserved"),
        ("device", 3, lambda free: free - free, "request"),
    ],
)
def test_checker_sees_what_differs(check, few, tmp_path, start, word, change, said):
    lines = list(few)
    at = first(lines, start)
    lines[at] = with_word(lines[at], word, change)
    file = tmp_path / "changed.txt"
    file.write_text("\n".join(lines) + "\n")
    done = check(file)
    assert done.returncode == 1
    assert last_numbers(done)[-1] == 1
    assert said in done.stdout


def test_checker_sees_an_event_too_many_and_one_too_few(check, few, tmp_path):
    file = tmp_path / "changed.txt"
    for changed in (1, -1):
        lines = list(few)
        at = first(lines, "segment ") - 1  # the last event of the first program
        lines[at : at + 1] = [lines[at]] * (1 + changed)
        file.write_text("\n".join(lines) + "\n")
        done = check(file)
        assert done.returncode == 1
        assert "goes on with" in done.stdout


def test_programs_that_ran_run_again_alike(check, few, tmp_path):
    """--again, which cuts a failing program down, asks the same as the first time."""
    (tmp_path / "first.txt").write_text("\n".join(few) + "\n")
    run_programs(tmp_path / "again.txt", "--again", tmp_path / "first.txt")
    assert check(tmp_path / "again.txt").returncode == 0
    again = (tmp_path / "again.txt").read_text().splitlines()

    def asked(lines):
        kinds = ("malloc", "free", "record_stream", "empty_cache", "settings", "begin")
        return [line.split()[:3] for line in lines if line.split()[0] in kinds]

    assert asked(few) == asked(again)
