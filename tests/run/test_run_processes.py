"""`memlab run` of programs that start processes: which are recorded, under which number, and
what is said at the end.

Sizes are whole MiB of one tensor, so a peak says which process it is of.
"""

import os
import re
import signal
import subprocess
import sys

import pytest
from amounts import amount
from run_folders import ROOT, names, peaks, results

from memlab import phantom

pytestmark = pytest.mark.cuda

MIB = 1 << 20


@pytest.mark.parametrize("known", ["before", "after"])
def test_ranks_of_a_group_are_recorded_under_their_ranks(run, tmp_path, known):
    """Also where the group is made late, by processes that come in the other order."""
    done = run(f"""
import torch.distributed as dist

def demo(index, world_size, other):
    rank = index if {known!r} == "before" else 1 - index
    if {known!r} == "after":
        if rank == 0:
            other.wait()
        torch.zeros(1, device=rank)
        other.set()
    dist.init_process_group(
        "gloo", f"file://{{os.getcwd()}}/meet", rank=rank, world_size=world_size
    )
    model = torch.nn.Linear(1024, 1024).to(rank)
    held = hold(100 * (rank + 1), rank)
    dist.destroy_process_group()

if __name__ == "__main__":
    other = multiprocessing.get_context("spawn").Event()
    torch.multiprocessing.spawn(demo, args=(2, other), nprocs=2)
    print("PROGRAM ENDS")
""")
    out = tmp_path / "memlab_out"
    assert names(out) == results(0, 1)
    assert peaks(out) == {0: 104, 1: 204}
    assert done.stdout.endswith("PROGRAM ENDS\n")
    assert done.stderr.count("Peak on rank 1 (cuda:1): 204 MiB allocated") == 1
    assert done.stderr.count("\n  rank 0 (cuda:0): 104 MiB allocated") == 1
    assert "No recording" not in done.stderr and "No memory was allocated" not in done.stderr


def test_an_interrupted_program_ends_as_it_does_alone(tmp_path, run):
    """Ctrl-C reaches all processes: exit handlers run, children end, all is told."""
    done = run("""
import atexit

def work(ready):
    held = hold(64)
    try:
        ready.set()  # and from here on it may be interrupted
        signal.pause()
    except KeyboardInterrupt:
        print("CHILD ENDS", flush=True)

if __name__ == "__main__":
    atexit.register(lambda: print("EXIT HANDLER", flush=True))
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=work, args=(ready,))
    child.start()
    ready.wait()
    os.kill(child.pid, signal.SIGINT)
    child.join()
    os.kill(os.getpid(), signal.SIGINT)
""", status=-signal.SIGINT)
    assert done.stdout.index("CHILD ENDS") < done.stdout.index("EXIT HANDLER")
    assert "Peak on cuda:0: 64.0 MiB" in done.stderr
    assert names(tmp_path / "memlab_out") == results(0)


METHODS = ["fork", "spawn", "forkserver"]


@pytest.mark.parametrize("method", METHODS)
def test_children_that_touch_a_gpu_are_recorded(run, tmp_path, method):
    """A process, a pool and an executor; what touches no GPU leaves no file, and a child of
    a child counts like one."""
    done = run(f"""
import concurrent.futures

def work(mib):
    held = hold(mib)
    return os.getpid()

def outer():
    inner = multiprocessing.get_context({method!r}).Process(target=work, args=(40,))
    inner.start()
    inner.join()

def idle(value):
    return value + 1

if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["torch"])
    context = multiprocessing.get_context({method!r})
    manager = context.Manager()
    with context.Pool(1) as pool:
        assert pool.map(idle, [1]) == [2]
    with context.Pool(1) as pool:
        pool.apply(work, (10,))
        pool.close()
        pool.join()
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        assert pool.submit(work, 20).result() != os.getpid()
    child = context.Process(target=work, args=(30,))
    child.start()
    child.join()
    child = context.Process(target=outer)
    child.start()
    child.join()
    print("NAMES", *os.environ)
""", forked=False)
    kept = re.search("NAMES (.*)", done.stdout)[1].split()
    own = {"MEMLAB_PHANTOM_TOLD", "MEMLAB_PHANTOM_VALUES", "PYTHONPATH"}
    known = {*os.environ, *phantom.environment(), *own}
    assert set(kept) <= known
    out = tmp_path / "memlab_out"
    assert peaks(out) == {0: 10, 1: 20, 2: 30, 3: 40}, done.stderr
    assert names(out) == results(0, 1, 2, 3)
    assert done.stderr.count("Peak on process 3 (cuda:0)") == 1 and "and 1 more device\n" in done.stderr
    assert "Files in memlab_out, for N = 0-3: report.txt, report_rankN.txt" in done.stderr
    assert re.findall("memlab: (?!recording the).*", done.stderr) == []


@pytest.mark.parametrize("first", ["parent", "child"])
def test_the_programs_own_process_counts_too(run, tmp_path, first):
    """Who is first has the lowest number."""
    run(f"""
def work():
    hold(20)

if __name__ == "__main__":
    if {first!r} == "parent":
        held = hold(10)
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    held = None
    held = hold(10)
""")
    out = tmp_path / "memlab_out"
    assert peaks(out) == ({0: 10, 1: 20} if first == "parent" else {0: 20, 1: 10})
    assert names(out) == results(0, 1)


def test_ends_that_are_none(run, tmp_path):
    """A child that is killed, one that raises, one without memory, one that leaves by
    os._exit(), a daemon that is ended with the program: statuses are theirs, the events are
    there, and what is missing is said."""
    done = run("""
def killed():
    held = hold(10)
    os.kill(os.getpid(), signal.SIGKILL)

def raises():
    held = hold(20)
    raise ValueError("THE CHILD'S OWN")

def out_of_memory():
    held = hold(30)
    torch.empty(1 << 50, device="cuda")

def leaves():
    held = hold(40)
    os._exit(7)

def daemon(ready):
    held = hold(50)
    ready.set()
    while True:
        signal.pause()

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    codes = []
    for target in killed, raises, out_of_memory, leaves:
        child = context.Process(target=target)
        child.start()
        child.join()
        codes.append(child.exitcode)
    ready = context.Event()
    child = context.Process(target=daemon, args=(ready,), daemon=True)
    child.start()
    ready.wait()
    print("CODES", codes)
    sys.exit(5)
""", status=5)
    assert "CODES [-9, 1, 1, 7]" in done.stdout
    assert "THE CHILD'S OWN" in done.stderr and "OutOfMemoryError" in done.stderr
    out = tmp_path / "memlab_out"
    assert peaks(out) == {0: 10, 1: 20, 2: 30, 3: 40, 4: 50}
    whole = results(1, 2) | {"rank2_oom.pickle", "report_rank2_oom.txt"}
    assert names(out) == whole | {"rank0.mlab", "rank3.mlab", "rank4.mlab"}
    assert "  Ended by a signal or os._exit(): processes 0, 3-4\n" in done.stderr
    assert "No report: processes 0, 3-4 ended by a signal or by os._exit().\n" in done.stderr
    assert "Files in memlab_out, for N = 0, 3-4: rankN.mlab\n" in done.stderr
    # The one that ran out of memory leads.
    assert done.stderr.count("Peak on process 2 (cuda:0): 30.0 MiB") == 1


@pytest.mark.parametrize("first", ["parent", "children"])
@pytest.mark.parametrize("end", ["os._exit(0)", "return"])
def test_children_that_only_ask_about_the_gpu_are_not_told(run, tmp_path, first, end):
    """They initialise CUDA and allocate nothing; the program's own process keeps its
    number, and is told alone."""
    done = run(f"""
def asks():
    torch.cuda.set_device(0)
    {end}

def ask(method):
    for _ in range(3):
        child = multiprocessing.get_context(method).Process(target=asks)
        child.start()
        child.join()
        assert child.exitcode == 0

if __name__ == "__main__":
    if {first!r} == "parent":
        held = hold(10)
        ask("spawn")
    else:
        ask("fork")
        held = hold(10)
""")
    out = tmp_path / "memlab_out"
    assert names(out) == results(0) and peaks(out) == {0: 10}
    assert "Peak on cuda:0: 10.0 MiB" in done.stderr
    assert "No report" not in done.stderr and "rank 0" not in done.stderr


def test_a_run_whose_processes_only_ask_says_that_nothing_was_allocated(run, tmp_path):
    done = run("""
def asks():
    torch.cuda.set_device(0)
    os._exit(0)

if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=asks)
    child.start()
    child.join()
""")
    assert names(tmp_path / "memlab_out") == results(0)
    assert "No memory was allocated while recording." in done.stderr
    assert "No report" not in done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_one_line_says_that_the_device_is_a_phantom(run, method):
    """Of whatever processes use it."""
    done = run(f"""
if __name__ == "__main__":
    for _ in range(2):
        child = multiprocessing.get_context({method!r}).Process(target=hold, args=(10,))
        child.start()
        child.join()
    held = hold(10)
""", "--phantom=h200", forked=False)
    said = [line for line in done.stderr.splitlines() if "phantom" in line]
    assert said == [
        "memlab: recording the phantom device (2 x h200, 140 GiB each): only small results "
        "are computed"
    ]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_leave_no_file(run, tmp_path, method):
    done = run(f"""
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((4,), float(index))

if __name__ == "__main__":
    loader = DataLoader(
        Numbers(), 4, num_workers=1, multiprocessing_context={method!r},
        persistent_workers=True,
    )
    for _ in range(2):
        for batch in loader:
            batch = batch.to("cuda")
    held = hold(10)
    print("PROGRAM ENDS")
""")
    out = tmp_path / "memlab_out"
    assert names(out) == results(0) and peaks(out) == {0: 10}
    assert "Peak on cuda:0: 10.0 MiB" in done.stderr and "rank 0" not in done.stderr
    assert done.stdout.endswith("PROGRAM ENDS\n")


def test_the_ranks_of_a_second_group_have_free_numbers(run, tmp_path):
    """A program may start its ranks twice; each start is a table of its own."""
    done = run("""
import torch.distributed as dist

def work(rank, mib):
    dist.init_process_group(
        "gloo", f"file://{os.getcwd()}/meet{mib}", rank=rank, world_size=2
    )
    held = hold(mib + 10 * rank, rank)
    dist.barrier()

if __name__ == "__main__":
    for mib in 10, 30:
        torch.multiprocessing.start_processes(work, (mib,), 2, start_method="fork")
""")
    assert sorted(peaks(tmp_path / "memlab_out").values()) == [10, 20, 30, 40]
    assert peaks(tmp_path / "memlab_out")[0] == 10
    assert done.stderr.count("Peak on rank 1") == 2


def test_the_rank_that_is_set_in_the_childs_environment(run, tmp_path):
    """As launchers for notebooks do."""
    run("""
def work(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    hold(10 * (rank + 1), rank)

if __name__ == "__main__":
    for rank in 1, 0:
        child = multiprocessing.get_context("fork").Process(target=work, args=(rank,))
        child.start()
        child.join()
""")
    assert peaks(tmp_path / "memlab_out") == {0: 10, 1: 20}


def test_children_of_a_run_of_torchrun_have_numbers_of_no_rank(run, tmp_path):
    run("""
def work():
    held = hold(20)

if __name__ == "__main__":
    held = hold(10)
    for _ in range(2):
        child = multiprocessing.get_context("spawn").Process(target=work)
        child.start()
        child.join()
""", env={"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "1"})
    assert peaks(tmp_path / "memlab_out") == {1: 10, 4: 20, 7: 20}


def test_a_plain_recording_in_a_forked_child(run, tmp_path, phantom_run):
    """Without memlab run: a child of a process that has used no GPU records itself, beside a
    recording of the parent that waits."""
    done = phantom_run("""
import os
import torch
import memlab

waiting = memlab.MemorySnapshot(file="parent.mlab").start()
child = os.fork()
if child == 0:
    with memlab.MemorySnapshot(file="child.mlab") as snapshot:
        held = torch.empty(10 << 20, dtype=torch.uint8, device="cuda")
    print(snapshot.peak()["peak"]["allocated_bytes"], waiting.waiting, flush=True)
    try:
        waiting.data()
    except memlab.Error as error:
        print(error, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
held = torch.empty(20 << 20, dtype=torch.uint8, device="cuda")
print(waiting.stop().peak()["peak"]["allocated_bytes"])
for name in "child.mlab", "parent.mlab":
    print(memlab.open(name).peak()["peak"]["allocated_bytes"])
""", warm=False)
    assert done.stdout.split("\n") == [
        f"{10 * MIB} True",
        "a forked child cannot read its parent's recording: read it in the parent",
        str(20 * MIB), str(10 * MIB), str(20 * MIB), "",
    ]


def test_other_programs_are_told_of_with_the_line_that_records_them(run, tmp_path):
    (tmp_path / "other.py").write_text("print('OTHER')")
    done = run("""
import subprocess
subprocess.run([sys.executable, "-u", "other.py"], check=True)
subprocess.run("python3 other.py", shell=True, check=True)
subprocess.run(["true"], check=True)
child = subprocess.Popen(args=[sys.executable, "-m", "memlab", "--version"])
child.wait()
held = hold(10)
""", forked=False)
    assert "the program started 2 other Python processes, not recorded" in done.stderr
    python = sys.executable
    assert f"memlab: to record: {python} -u -m memlab run --phantom=auto other.py" in done.stderr
    assert names(tmp_path / "memlab_out") == results(0)


def test_a_launcher_is_run_so_that_each_process_is_recorded(tmp_path):
    launcher = tmp_path / "bin" / "deepspeed"
    launcher.parent.mkdir()
    launcher.write_text('#!/bin/sh\necho "$@"\n')
    launcher.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "run", "--phantom", "rtx4090", "deepspeed",
         "--num_gpus", "2", "program.py", "-x"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{launcher.parent}:/bin"},
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    words = "--num_gpus 2 --module memlab run --phantom rtx4090 program.py -x"
    assert done.stderr == f"memlab: deepspeed {words}\n"
    assert (done.returncode, done.stdout) == (0, words + "\n")


def test_a_launcher_that_is_not_there_is_named(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "run", "deepspeed", "program.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": "/nowhere"},
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "memlab: deepspeed: No such file or directory"


def test_a_process_that_only_looks_at_the_gpu_has_no_part(run, tmp_path):
    """Trainers initialise CUDA before they start their ranks."""
    done = run("""
def work(rank):
    held = hold(10)

if __name__ == "__main__":
    torch.cuda.init()
    torch.multiprocessing.spawn(work, nprocs=1)
""")
    out = tmp_path / "memlab_out"
    assert peaks(out) == {0: 10} and names(out) == results(0)
    assert "Peak on cuda:0: 10.0 MiB" in done.stderr and "rank 0" not in done.stderr
    assert "Files in memlab_out: report.txt" in done.stderr


def test_a_terminated_run_says_where_the_others_are_recorded(run, tmp_path):
    """They go on as they would alone, and their files are whole in the end."""
    done = run("""
def work(ready, parent):
    os.close(parent[1])
    held = hold(10)
    ready.set()
    os.read(parent[0], 1)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    ready, parent = context.Event(), os.pipe()
    child = context.Process(target=work, args=(ready, parent))
    child.start()
    print("CHILD", child.pid, flush=True)
    ready.wait()
    os.kill(os.getpid(), signal.SIGTERM)
""", status=-signal.SIGTERM, forked=False)
    out = tmp_path / "memlab_out"
    pid = re.search(r"CHILD (\d+)", done.stdout)[1]
    assert f"memlab: process {pid} is recorded in {out}/rank0.mlab\n" in done.stderr
    assert peaks(out) == {0: 10}
    assert names(out) == results(0) | {".rank0.processes"}
    assert "Peak" not in done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
def test_an_executor_that_nobody_shut_down_holds_no_run(run, kind):
    done = run(f"""
import concurrent.futures

def work(number):
    return number + 1

if __name__ == "__main__":
    executor = concurrent.futures.{kind}(2)
    print("RESULT", executor.submit(work, 41).result())
    held = hold(24)
""")
    assert "RESULT 42" in done.stdout and "Peak on cuda:0: 24.0 MiB" in done.stderr


def test_children_record_whatever_their_parents_threads_were_doing(phantom_run):
    """Forks beside threads that record the memory of the CPU and leave regions."""
    done = phantom_run("""
import os, signal, sys, threading
import torch
import memlab

cpu = memlab.MemorySnapshot(source="cpu", file="cpu.mlab").start()
waiting = memlab.MemorySnapshot(file="waiting.mlab").start()
halt = threading.Event()

def work():
    while not halt.is_set():
        with torch.profiler.record_function("region"):
            held = [torch.empty(1000 + i) for i in range(50)]

def record(path):
    with memlab.MemorySnapshot(file=path, max_entries=1000) as snapshot:
        held = torch.empty(10 << 20, dtype=torch.uint8, device="cuda")
    return snapshot.peak()["peak"]["allocated_bytes"] == 10 << 20

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
statuses = []
for i in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        os._exit(0 if record("child.mlab") else 1)
    statuses.append(os.waitpid(child, 0)[1])
halt.set()
for thread in threads:
    thread.join()
assert not any(statuses), statuses
assert waiting.waiting and cpu.stop().peak()["peak"]["allocated_bytes"] > 0
""", amount("RECORDING_FORKS", 10), warm=False, timeout=4 * 3600)
    assert done.stdout == ""
