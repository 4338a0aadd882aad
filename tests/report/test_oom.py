"""Out of memory on the phantom device: what is written, what it says, and what the
program notices of it, which is nothing."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from cuda_here import KEEPS_WORKSPACES
from lines_programs import MEMLAB
from modes import NEW
from report_keys import undocumented

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
GIB = 1 << 30

pytestmark = pytest.mark.cuda

# What the programs share: bytes on the device, and a request that fails.
PRELUDE = """
import os, sys, torch
MIB = 1 << 20
def take(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")
def fail(size):
    try:
        take(size)
    except torch.cuda.OutOfMemoryError as error:
        return error
    raise AssertionError("no error")
"""


def environment(memory=2 * GIB):
    """On the phantom, a GPU or not: the figures are those of its memory."""
    from memlab import phantom

    return {
        **os.environ,
        **phantom.environment(),
        "MEMLAB_PHANTOM_MEMORY": str(memory),
        "MEMLAB_PHANTOM_QUIET": "1",
    }


@pytest.fixture
def run(tmp_path):
    """run(source, ...) runs `memlab run` on it, with environment VARIABLES, or the program
    alone: (done, folder)."""

    def start(source, alone=False, check=0, out="out", memory=2 * GIB, forked=True,
              **variables):
        script = tmp_path / "program.py"
        script.write_text(PRELUDE + source)
        words, env = ["run", "--out", out, script], environment(memory)
        if alone:
            done = warm.run(script, env={**env, **variables}, cwd=tmp_path)
        elif forked:
            done = warm.run(MEMLAB.format(variables=variables), *words, env=env, cwd=tmp_path)
        else:
            done = subprocess.run([sys.executable, "-m", "memlab", *words], env=env,
                                  cwd=tmp_path, text=True, capture_output=True,
                                  stdin=subprocess.DEVNULL, timeout=300)
        assert done.returncode == check, done.stdout + done.stderr
        return done, tmp_path / out

    return start


def answer_of(path, device=0):
    from memlab._files import load

    return load.read_recording(str(path)).oom(device)


def line_of(text, source):
    """The line of the program that has TEXT."""
    lines = (PRELUDE + source).splitlines()
    (number,) = [i + 1 for i, line in enumerate(lines) if text in line]
    return number


def plain_oom_events(path):
    with open(path, "rb") as file:
        events = pickle.load(file)["device_traces"][0]
    return [event for event in events if event["action"] == "oom"]


# ---- What it says, worked out by hand ----

# Twenty segments of 20 MiB, each [free 5][kept 5][free 5][kept 5], and all else of the
# device but some 10 MiB in one block.
FRAGMENTS = """
pieces = [torch.empty(5 * MIB, dtype=torch.uint8, device="cuda") for _ in range(80)]
free = torch.cuda.mem_get_info()[0]
big = take(free // (2 * MIB) * 2 * MIB - 10 * MIB)
del pieces[::2]
left = torch.cuda.mem_get_info()
print("LEFT", *left, big.numel())
fail(100 * MIB)
fail(12 * MIB)
"""


def test_fragmentation(run):
    done, out = run(FRAGMENTS)
    _, left, total, big = done.stdout.splitlines()[0].split()
    left, total, big = int(left), int(total), int(big)
    first = answer_of(out / "rank0_oom.pickle")
    assert first["verdict"] == "fragmented"
    assert first["mismatches"] == 0 and first["uncertain_bytes"] == 0
    assert first["request"]["bytes"] == first["request"]["driver_bytes"] == 100 * MIB
    assert first["at"]["allocated_bytes"] == 200 * MIB + big
    assert first["at"]["reserved_bytes"] == 400 * MIB + big
    eligible = {"bytes": 200 * MIB, "pieces": 40, "largest_bytes": 5 * MIB}
    assert first["unused"]["eligible"] == eligible
    assert sum(part["bytes"] for part in first["unused"].values()) == 200 * MIB
    assert first["on_device"] == {
        "free_bytes": left, "total_bytes": total, "allowed_bytes": None,
        "headroom_bytes": left, "outside_bytes": total - left - 400 * MIB - big,
    }
    # No segment is as long as the request.
    assert first["nearest_fit"] is None
    assert [hole["bytes"] for hole in first["holes"]] == [5 * MIB] * 5
    kept = line_of("for _ in range(80)", FRAGMENTS)
    hole = first["holes"][0]
    assert hole["segment_bytes"] == 20 * MIB and hole["before"] is None
    assert hole["after"]["bytes"] == 5 * MIB and hole["after"]["line"] == kept
    assert first["advice"][0] == {"kind": "expandable_segments", "bytes": 200 * MIB}

    last = answer_of(out / "rank0_oom_last.pickle")
    assert (last["number"], last["count"]) == (2, 2)
    # Three quarters of a segment, with one block of it in the way.
    fit = last["nearest_fit"]
    assert (fit["bytes"], fit["used_bytes"], fit["used_blocks"]) == (15 * MIB, 5 * MIB, 1)
    assert fit["blocks"][0]["line"] == kept

    text = (out / "report_oom.txt").read_text()
    assert text.startswith("CUDA out of memory on cuda:0 in program.py:5 take: asked for")
    for words in ("asked for 100 MiB", "in 40 pieces, the largest 5.00 MiB",
                  "The unused 200 MiB would have been enough",
                  f"program.py:{kept}", "memlab explain does"):
        assert words in " ".join(text.split()), words
    # No trial was made: neither is fragmentation blamed, nor a setting proposed.
    account = text.partition("\nPeak on ")[0]
    assert "Fragmentation" not in account and "expandable" not in account
    assert "without 1 block of 5.00 MiB" in (out / "report_oom_last.txt").read_text()


# One segment of 128 MiB: 30 of the linear layer's result, which is freed; 32 of cuBLAS's
# workspace; 50 that are freed; 16 never used. What comes later lies in segments of its
# own: 30 of relu's result, and 7.5 of the input in the 20 of a smaller request.
HOLE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(1024, 4096, bias=False, device="cuda")
    def forward(self, x):
        left = self.fc(x)
        gap = take(50 * MIB)
        return left.relu()

torch.cuda.set_per_process_memory_fraction(0.125)
net = Net()
x = torch.zeros(1920, 1024, device="cuda")
whole = take(128 * MIB)
del whole
out = net(x)
def ask():
    return fail(110 * MIB)
ask()
"""


def test_the_largest_hole_and_its_neighbours(run):
    """Below a limit, which is no reason to hide that the cache is in pieces."""
    _, out = run(HOLE, **KEEPS_WORKSPACES)
    answer = answer_of(out / "rank0_oom.pickle")
    assert answer["verdict"] == "limit" and answer["mismatches"] == 0
    assert answer["at"]["reserved_bytes"] == (16 + 20 + 128 + 30) * MIB
    # Fractions of what the device has, the limit is 256 MiB.
    assert answer["on_device"]["headroom_bytes"] == (256 - 194) * MIB
    assert answer["unused"]["eligible"] == {
        "bytes": 30 * MIB + 66 * MIB + 12 * MIB + MIB // 2,
        "pieces": 3, "largest_bytes": 66 * MIB,
    }
    assert undocumented(answer) == set()
    hole = answer["holes"][0]
    assert (hole["bytes"], hole["segment_bytes"]) == (66 * MIB, 128 * MIB)
    assert hole["after"] is None
    before = hole["before"]
    assert (before["bytes"], before["module"]) == (32 * MIB, "fc")
    assert before["line"] == line_of("left = self.fc(x)", HOLE)
    assert before["caller"]["line"] == line_of("out = net(x)", HOLE)
    fit = answer["nearest_fit"]
    assert (fit["bytes"], fit["used_bytes"], fit["used_blocks"]) == (
        128 * MIB, 32 * MIB, 1)
    assert answer["request"]["caller"]["function"] == "fail"
    assert [item["kind"] for item in answer["advice"]][:2] == [
        "raise_limit", "expandable_segments"]
    # A module's line was recorded, and no backward pass to tell what it saved.
    assert sum(answer["unknown_because"].values()) == answer["by_category"]["unknown"]
    text = " ".join((out / "report_oom.txt").read_text().split())
    for words in (
        "Called from program.py:8 fail.",
        "The unused 108 MiB with the 62.0 MiB still available would have "
        "been enough in one piece, but it is in 3 pieces, the largest 66.0 MiB.",
        f"before 32.0 MiB of program.py:{before['line']} forward (forward, fc), "
        f"called from program.py:{before['caller']['line']} <module>",
        "after the segment ends",
    ):
        assert words in text, words


def test_expandable_segments_need_no_such_advice(run):
    _, out = run(
        # Pages of 20 MiB.
        FRAGMENTS.replace("fail(12 * MIB)", "").replace(
            "free // (2 * MIB) * 2 * MIB - 10 * MIB", "free // (20 * MIB) * 20 * MIB"
        ),
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
    )
    answer = answer_of(out / "rank0_oom.pickle")
    assert answer["expandable_segments"] and answer["mismatches"] == 0
    assert answer["unused"]["eligible"]["bytes"] == 200 * MIB
    assert "expandable_segments" not in [item["kind"] for item in answer["advice"]]


def test_too_big_for_the_device(run):
    _, out = run("fail(1 << 42)\n")
    answer = answer_of(out / "rank0_oom.pickle")
    assert answer["verdict"] == "too_big"
    assert answer["request"]["bytes"] == 1 << 42
    assert answer["on_device"]["total_bytes"] == 2 * GIB
    assert answer["advice"] == [{"kind": "request", "bytes": 1 << 42}]
    text = " ".join((out / "report_oom.txt").read_text().split())
    assert "4.00 TiB is more than 2.00 GiB, all that this process may ever have" in text


def test_the_limit_of_the_process(run):
    source = """
torch.cuda.set_per_process_memory_fraction(0.5)
kept = take(600 * MIB)
fail(500 * MIB)
"""
    _, out = run(source)
    answer = answer_of(out / "rank0_oom.pickle")
    assert answer["verdict"] == "limit"
    assert answer["on_device"]["total_bytes"] == 2 * GIB
    assert answer["on_device"]["allowed_bytes"] == GIB
    assert answer["on_device"]["headroom_bytes"] == GIB - 600 * MIB
    free = answer["on_device"]["free_bytes"]
    assert free >= 500 * MIB
    assert answer["advice"][0] == {
        "kind": "raise_limit", "bytes": free - (GIB - 600 * MIB)
    }
    assert "set_per_process_memory_fraction" in (out / "report_oom.txt").read_text()


def test_the_cache_of_another_stream(run):
    source = """
with torch.cuda.stream(torch.cuda.Stream()):
    kept, unused = take(8 * MIB), take(8 * MIB)
free = torch.cuda.mem_get_info()[0]
big = take(free // (2 * MIB) * 2 * MIB - 4 * MIB)
del unused
fail(9 * MIB)
"""
    _, out = run(source)
    answer = answer_of(out / "rank0_oom.pickle")
    assert answer["verdict"] == "not_eligible"
    assert answer["unused"]["other_stream"]["bytes"] == 12 * MIB
    assert answer["unused"]["eligible"]["bytes"] == 0
    assert "12.0 MiB in 1 piece, of other streams" in (out / "report_oom.txt").read_text()


def test_in_backward(run):
    """The gradient of a slice is as large as the whole, and made on autograd's thread."""
    source = """
x = torch.empty(800 * MIB, dtype=torch.uint8, device="cuda").view(torch.float32)
x.requires_grad_()
try:
    x[:10].sum().backward()
except torch.cuda.OutOfMemoryError:
    print("CAUGHT")
"""
    done, out = run(source)
    assert "CAUGHT" in done.stdout
    answer = answer_of(out / "rank0_oom.pickle")
    assert answer["request"]["phase"] == "backward"
    assert answer["request"]["bytes"] == 800 * MIB
    # The thread has no frames: the line is that of the slice, or one beside it.
    assert answer["request"]["file"].endswith("program.py")
    assert answer["request"]["how"] in ("node", "near")
    assert "backward" in (out / "report_oom.txt").read_text().splitlines()[0]


def test_memory_that_grows(run):
    """Each step keeps 40 MiB; the last that does not fit is the twentieth or so."""
    source = """
weight = torch.nn.Parameter(torch.empty(MIB, device="cuda"))
kept = []
def step():
    out = weight * 2
    kept.append(take(40 * MIB))
    out.sum().backward()
    weight.grad = None
try:
    while True:
        step()
except torch.cuda.OutOfMemoryError:
    pass
"""
    _, out = run(source)
    answer = answer_of(out / "rank0_oom.pickle")
    growth = answer["growth"]
    assert undocumented(answer) == set()
    steps = growth["steps"]
    assert steps >= 10 and growth["last_bytes"] - growth["first_bytes"] == steps * 40 * MIB
    assert growth["by_line"][0]["line"] == 5  # of take()
    assert answer["advice"][0]["kind"] == "growth"
    assert "Memory is kept from step to step" in (out / "report_oom.txt").read_text()


def test_a_snapshot_of_torchs_own(run, tmp_path):
    source = """
torch.cuda.memory._record_memory_history(stacks="python")
kept = take(300 * MIB)
fail(1 << 40)
torch.cuda.memory._dump_snapshot("torch.pickle")
"""
    run(source, alone=True)
    done = subprocess.run([sys.executable, "-m", "memlab", "report", "--full", "torch.pickle"],
                          cwd=tmp_path, text=True, capture_output=True)
    assert "CUDA out of memory on cuda:0" in done.stdout, done.stderr
    assert "asked for 1.00 TiB" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "report", "torch.pickle", "--json"],
        cwd=tmp_path, text=True, capture_output=True)
    (answer,) = json.loads(done.stdout)["oom"]
    assert answer["device"] == 0 and answer["verdict"] == "too_big"
    assert answer["at"]["allocated_bytes"] == 300 * MIB
    # torch's own snapshot says neither.
    assert answer["on_device"]["total_bytes"] is None


# ---- What the program notices ----

NOTICED = """
import traceback
kept = take(700 * MIB)
pieces = [take(3 * MIB) for _ in range(20)]
del pieces[::2]
for size in (1 << 40, 900 * MIB, 1000 * MIB):
    try:
        take(size)
    except BaseException as error:
        print(type(error), error.args, error.__cause__, error.__context__)
        print("".join(traceback.format_exception(error)[1:]))
print(sys.exc_info())
for key, value in torch.cuda.memory_stats().items():
    print(key, value)
print([s["total_size"] for s in torch.cuda.memory_snapshot()])
"""


def test_the_error_and_the_statistics_are_as_without_memlab(run):
    alone, _ = run(NOTICED, alone=True)
    recorded, out = run(NOTICED)
    # Addresses and processes differ from run to run; nothing that is printed has them.
    wanted = alone.stdout.splitlines()
    assert recorded.stdout.splitlines()[: len(wanted)] == wanted
    assert "num_ooms 3" in wanted
    assert (out / "rank0_oom_last.pickle").exists()


def test_caught_and_tried_again_fifty_times(run):
    done, out = run(
        "for i in range(50):\n    fail((1 << 40) + i * 2 * MIB)\n"
        "print('OOMS', torch.cuda.memory_stats()['num_ooms'])\n"
    )
    assert "OOMS 50" in done.stdout
    assert {path.name for path in out.iterdir() if "oom" in path.name} == {
        "rank0_oom.pickle", "rank0_oom_last.pickle", "report_oom.txt",
        "report_oom_last.txt",
    }
    said = [line for line in done.stderr.splitlines() if line.startswith("memlab: ")]
    assert len(said) == 3 and "50 times out of memory" in said[2]
    assert len(plain_oom_events(out / "rank0_oom.pickle")) == 1
    events = plain_oom_events(out / "rank0_oom_last.pickle")
    assert len(events) == 50
    # The last, which was left for the end, and no other.
    answer = answer_of(out / "rank0_oom_last.pickle")
    assert answer["request"]["bytes"] == (1 << 40) + 49 * 2 * MIB
    assert (answer["number"], answer["count"]) == (50, 50)


def test_two_threads_at_once(run):
    done, out = run(
        "import threading\n"
        "barrier = threading.Barrier(2)\n"
        "def work():\n"
        "    for _ in range(20):\n"
        "        barrier.wait()\n"
        "        fail(1 << 40)\n"
        "threads = [threading.Thread(target=work) for _ in range(2)]\n"
        "[t.start() for t in threads]\n"
        "[t.join() for t in threads]\n"
        "print('OOMS', torch.cuda.memory_stats()['num_ooms'])\n"
    )
    assert "OOMS 40" in done.stdout and "Traceback" not in done.stderr
    assert "40 times out of memory" in done.stderr
    assert len(plain_oom_events(out / "rank0_oom_last.pickle")) == 40


def test_an_interrupt_meanwhile_is_the_programs(run):
    """A stderr that interrupts stands for Ctrl-C while the recording is written."""
    done, _ = run(
        "class Err:\n"
        "    def write(self, text):\n"
        "        raise KeyboardInterrupt\n"
        "    def flush(self):\n"
        "        pass\n"
        "real, sys.stderr = sys.stderr, Err()\n"
        "try:\n"
        "    try:\n"
        "        take(1 << 40)\n"
        "    except torch.cuda.OutOfMemoryError:\n"
        "        print('OOM')\n"
        "    for _ in range(1000):\n"
        "        pass\n"
        "except KeyboardInterrupt:\n"
        "    print('INTERRUPTED')\n"
        "sys.stderr = real\n"
    )
    assert "INTERRUPTED" in done.stdout


def test_a_full_disk(run):
    """A limit on file size fails writes as a full disk does, but not those to a pipe, which
    stderr is in a new process."""
    done, out = run(
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "old = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, old[1]))\n"
        "print('CAUGHT', type(fail(1 << 40)).__name__)\n"
        "fail(1 << 41)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, old)\n",
        forked=False,
    )
    assert "CAUGHT OutOfMemoryError" in done.stdout
    said = [line for line in done.stderr.splitlines() if "could not be written" in line]
    assert len(said) == 1 and "File too large" in said[0]
    assert "2 times out of memory; 2 not written" in done.stderr
    assert not [path for path in out.iterdir() if "oom" in path.name]
    assert not [path for path in out.iterdir() if path.name.startswith(".memlab-")]


def test_every_rank_writes(run):
    for number in ("0", "1"):
        run(f"fail((1 << 40) + {number} * 2 * MIB)\n", RANK=number)
    _, out = run("fail(1 << 41)\n", RANK="1", out="other")
    assert sorted(path.name for path in out.parent.glob("o*/*oom*")) == [
        "rank0_oom.pickle", "rank1_oom.pickle", "rank1_oom.pickle", "report_oom.txt",
        "report_rank1_oom.txt", "report_rank1_oom.txt",
    ]
    answer = answer_of(out.parent / "out" / "rank1_oom.pickle")
    assert answer["request"]["bytes"] == (1 << 40) + 2 * MIB


def test_a_forked_child_writes_its_own(run):
    """The parent's files are the parent's, which is second to use the GPU."""
    done, out = run(
        "child = os.fork()\n"
        "if child == 0:\n"
        "    print('CHILD', type(fail(1 << 41)).__name__, flush=True)\n"
        "    os._exit(0)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
        "print('WRITTEN', sorted(n for n in os.listdir('out') if 'oom' in n))\n"
        "fail(1 << 40)\n"
    )
    assert "CHILD OutOfMemoryError" in done.stdout
    assert "WRITTEN ['rank0_oom.pickle', 'report_oom.txt']" in done.stdout
    said = [line for line in done.stderr.splitlines() if "out of memory; wrote" in line]
    assert len(said) == 2, done.stderr
    assert answer_of(out / "rank0_oom.pickle")["request"]["bytes"] == 1 << 41
    assert answer_of(out / "rank1_oom.pickle")["request"]["bytes"] == 1 << 40


# ---- MemorySnapshot(on_oom=...) ----


def test_a_snapshot_writes_where_it_was_told(run, tmp_path):
    run(
        """
import memlab
one = memlab.MemorySnapshot(on_oom="one").start()
two = memlab.MemorySnapshot(on_oom="two/r{rank}.pickle").start()
os.chdir("/")
kept = take(300 * MIB)
fail(1 << 40)
one.stop()
fail(1 << 41)
two.stop()
fail(1 << 42)
""",
        alone=True, RANK="3",
    )
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("*/*"))
    assert found == [
        "one/rank3_oom.pickle", "one/rank3_oom.txt", "two/r3.pickle", "two/r3.txt",
        "two/r3_last.pickle", "two/r3_last.txt",
    ]
    for path in tmp_path.glob("*/*"):
        assert path.stat().st_mode & 0o777 == NEW, path
    assert answer_of(tmp_path / "one/rank3_oom.pickle")["request"]["bytes"] == 1 << 40
    assert answer_of(tmp_path / "two/r3_last.pickle")["request"]["bytes"] == 1 << 41
    assert "asked for 1.00 TiB" in (tmp_path / "one/rank3_oom.txt").read_text()


def test_a_snapshot_that_was_forgotten_writes_nothing(run, tmp_path):
    run(
        """
import gc, memlab
memlab.MemorySnapshot(on_oom="one").start()
gc.collect()
fail(1 << 40)
""",
        alone=True,
    )
    assert list((tmp_path / "one").iterdir()) == []


@pytest.mark.parametrize("where", ["", 3, b"bytes"])
def test_a_place_that_is_none(where):
    import memlab

    with pytest.raises((ValueError, TypeError)):
        memlab.MemorySnapshot(on_oom=where)


def test_a_place_that_cannot_be(tmp_path):
    import memlab

    (tmp_path / "file").write_text("")
    with pytest.raises(memlab.Error, match="file"):
        memlab.MemorySnapshot(on_oom=tmp_path / "file" / "folder")


def test_ranks_do_not_write_over_each_other(tmp_path, monkeypatch):
    from memlab._record import oom

    paths = oom.Paths(tmp_path / "oom.pickle")
    monkeypatch.setenv("RANK", "0")
    assert paths(False) == (f"{tmp_path}/oom.pickle", f"{tmp_path}/oom.txt")
    monkeypatch.setenv("RANK", "3")
    assert paths(False)[0] == f"{tmp_path}/oom_rank3.pickle"
    assert paths(True)[0] == f"{tmp_path}/oom_rank3_last.pickle"
    assert oom.Paths(tmp_path / "r{rank}.pkl")(False)[0] == f"{tmp_path}/r3.pkl"


def test_the_last_that_could_not_be_written_is_not_claimed(
    tmp_path, capsys, monkeypatch
):
    from memlab._record import oom

    class Recording:
        full = False

        def write_pickle(self, path, extras):
            if self.full:
                raise OSError(28, "No space left on device")

    recording = Recording()
    watch = oom.Watch(recording, oom.Paths(tmp_path))
    monkeypatch.setattr(oom, "report_text", lambda *args: "")
    watch._count = 3
    watch._write(recording, 2)
    recording.full = True
    watch._write(recording, 3)
    watch.end()
    said = capsys.readouterr().err
    assert "3 times out of memory; 1 not written" in said, said
