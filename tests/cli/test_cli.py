"""The command line, run as a user would: results, exit statuses, and bad input."""

import fcntl
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from modes import NEW
from report_keys import undocumented

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "train_gpt.py"
SMALL = ["--layers", "2", "--dim", "48", "--batch", "2", "--block", "32"]


def memlab(*args, env=None, cwd=None, timeout=300):
    return subprocess.run(
        [sys.executable, "-m", "memlab", *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def one_line_error(done):
    """The one line of the error, which starts with memlab:."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("memlab: ")
    return lines[0]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The results of `memlab run --phantom=auto` of the example program."""
    from cuda_here import why_no_cuda

    if why_no_cuda():
        pytest.skip(why_no_cuda())
    folder = tmp_path_factory.mktemp("demo")
    done = memlab("run", "--phantom=auto", "--out", "out", EXAMPLE, "--steps", "2", *SMALL,
                  cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "out", done


def test_run_leaves_its_results(demo):
    out, done = demo
    assert {p.name for p in out.iterdir() if not p.name.startswith(".")} == {
        "rank0.mlab", "rank0.pickle", "rank0.html", "report.txt"
    }
    # The program's stdout is the program's.
    assert "step 2/2" in done.stdout and "Peak" not in done.stdout
    screen = done.stderr[done.stderr.index("Peak on cuda:0") :]
    assert len(screen.splitlines()) <= 24 and max(map(len, screen.splitlines())) <= 80
    for said in ("What it consists of", "Verdict: Fits", "Files in out: ", "Next: memlab"):
        assert said in screen
    for name in ("rank0.mlab", "rank0.pickle", "rank0.html", "report.txt"):
        assert name in screen
    report = (out / "report.txt").read_text()
    assert report.startswith(screen[: screen.index("  In step")])
    assert "By category" in report and "By line" in report
    for path in out.iterdir():
        # Of the lock nobody else needs to know.
        expected = 0o600 if path.name == ".rank0.lock" else NEW
        assert path.stat().st_mode & 0o777 == expected, path


def test_the_document_names_each_key_of_the_report(demo):
    out, _ = demo
    answer = json.loads(memlab("report", out / "rank0.mlab", "--json").stdout)
    assert answer["recording"]["state"] == "ended"
    device = answer["devices"][0]
    assert device["gpu"]["lines"] and device["host"] and device["by_stack"][0]["frames"]
    assert undocumented(answer) == set()


def test_the_report_says_what_is_in_the_snapshot(demo):
    """Every figure against an independent sum over the pickle's events."""
    out, _ = demo
    answer = json.loads(memlab("report", out / "rank0.pickle", "--json").stdout)
    device = answer["devices"][0]
    with open(out / "rank0.pickle", "rb") as file:
        snapshot = pickle.load(file)
    events = snapshot["device_traces"][0]
    assert device["events"] == len(events)
    assert device["dropped_events"] == 0 and device["mismatches"] == 0
    at = device["peak"]
    assert sum(device["by_category"].values()) == at["allocated_bytes"]
    assert sum(g["bytes"] for g in device["by_line"]) == at["allocated_bytes"]
    assert sum(g["bytes"] for g in device["by_stack"]) == at["allocated_bytes"]
    assert device["unattributed_bytes"] == sum(
        g["bytes"] for g in device["by_line"] if g["line"] == 0
    )
    # Requested bytes need no knowledge of blocks: add and subtract. Recording began
    # before the first allocation, so the sum starts at zero.
    live, requested = {}, 0
    for event in events[: at["event"]]:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            del live[event["addr"]]
    requested = sum(live.values())
    assert requested == at["requested_bytes"]
    assert at["allocated_bytes"] - requested == device["overhead"]["slack_bytes"]
    assert sum(g["blocks"] for g in device["by_line"]) == len(live)
    reserved = sum(
        e["size"] * {"segment_alloc": 1, "segment_free": -1}.get(e["action"], 0)
        for e in events[: at["event"]]
    )
    assert reserved == at["reserved_bytes"]


def test_the_report_says_what_was_lost(demo, tmp_path):
    out, _ = demo
    with open(out / "rank0.pickle", "rb") as file:
        snapshot = pickle.load(file)
    device = snapshot["memlab"]["devices"][0]
    assert device["lost_stacks"] == device["lost_names"] == 0
    assert "was lost" not in memlab("report", out / "rank0.pickle").stdout
    device["lost_stacks"], device["lost_names"] = 3, 4
    path = tmp_path / "lost.pickle"
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    text = memlab("report", "--full", path).stdout
    assert "  Events whose stack was lost: 3\n" in text
    assert "  Names that were lost, shown as <lost>: 4\n" in text
    (answer,) = json.loads(memlab("report", path, "--json").stdout)["devices"]
    assert (answer["lost_stacks"], answer["lost_names"]) == (3, 4)


def test_categories_of_the_example_are_exact(demo):
    """Worked out by hand from the model's shapes: every tensor rounds up to 512 bytes."""
    out, _ = demo
    answer = json.loads(memlab("report", out / "rank0.pickle", "--json").stdout)
    found = answer["devices"][0]["by_category"]
    dim, layers, block, vocabulary = 48, 2, 32, 256

    def tensor(*shape):
        count = 4
        for n in shape:
            count *= n
        return -(-count // 512) * 512

    per_layer = (
        [tensor(dim)] * 4 + [tensor(3 * dim, dim), tensor(3 * dim), tensor(dim, dim)]
        + [tensor(dim), tensor(4 * dim, dim), tensor(4 * dim), tensor(dim, 4 * dim)]
        + [tensor(dim)]
    )
    sizes = per_layer * layers + [
        tensor(vocabulary, dim), tensor(block, dim), tensor(dim), tensor(dim),
        tensor(vocabulary, dim),
    ]
    assert found["parameter"] == sum(sizes)
    # AdamW keeps two tensors of the parameter's size; its step counts are on the host.
    assert found["optimizer_state"] == 2 * sum(sizes)
    assert found["before_recording"] == 0 and found["buffer"] == 0
    assert found["activation"] > 0


def test_report_as_text_and_view_and_convert(demo, tmp_path):
    out, _ = demo
    text = memlab("report", out / "rank0.pickle")
    assert text.returncode == 0 and "Peak on cuda:0" in text.stdout
    page = memlab("view", out / "rank0.pickle", "--out", tmp_path / "page.html")
    assert page.returncode == 0
    html = (tmp_path / "page.html").read_text()
    assert "Content-Security-Policy" in html and "http://" not in html.split("<body")[0]
    as_json = memlab(
        "convert", "--expand", out / "rank0.pickle", tmp_path / "snapshot.json"
    )
    assert as_json.returncode == 0
    with open(out / "rank0.pickle", "rb") as file:
        snapshot = pickle.load(file)
    converted = json.loads((tmp_path / "snapshot.json").read_text())
    # JSON has no tuples: from torch 2.12 on each event has one, the ids of its pool.
    assert converted["device_traces"] == json.loads(json.dumps(snapshot["device_traces"]))
    again = memlab("convert", out / "rank0.pickle", tmp_path / "again.pickle")
    assert again.returncode == 0
    with open(tmp_path / "again.pickle", "rb") as file:
        assert pickle.load(file)["segments"] == [
            {**s, "segment_pool_id": tuple(s["segment_pool_id"])}
            for s in snapshot["segments"]
        ]


def test_the_cpu_is_recorded_as_exactly(tmp_path, torch):
    done = memlab("run", "--device", "cpu", "--out", tmp_path / "out", EXAMPLE, "--device",
                  "cpu", "--steps", "2", *SMALL)
    assert done.returncode == 0, done.stderr
    answer = json.loads(memlab("report", tmp_path / "out" / "rank0.pickle",
                               "--json").stdout)
    device = answer["devices"][0]
    assert answer["source"] == "cpu"
    assert device["mismatches"] == 0 and device["dropped_events"] == 0
    at = device["peak"]
    assert at["reserved_bytes"] == at["allocated_bytes"] == at["requested_bytes"]
    assert sum(device["by_category"].values()) == at["allocated_bytes"]
    # The parameters of the example, as on the GPU but without rounding to 512 bytes.
    dim, layers, block, vocabulary = 48, 2, 32, 256
    per_layer = 4 * dim + 3 * dim * (dim + 1) + dim * (dim + 1)
    per_layer += 4 * dim * (dim + 1) + dim * (4 * dim + 1)
    total = layers * per_layer + (2 * vocabulary + block) * dim + 2 * dim
    assert device["by_category"]["parameter"] == 4 * total
    # AdamW keeps two tensors of that size, and a step count of 4 bytes for each.
    tensors = layers * 12 + 5
    assert device["by_category"]["optimizer_state"] == 8 * total + 4 * tensors


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit('gone')", 1),
        ("raise ValueError('mine')", 1),
    ],
)
def test_run_keeps_the_exit_status(tmp_path, torch, body, status):
    script = tmp_path / "program.py"
    script.write_text(f"import torch\nx = torch.ones(1000)\nprint('out')\n{body}\n")
    done = memlab("run", "--device", "cpu", "--out", tmp_path / "out", script)
    assert done.returncode == status, done.stderr
    assert (tmp_path / "out" / "rank0.pickle").exists()
    if "mine" in body:
        assert "ValueError: mine" in done.stderr
        assert "_run/program.py" not in done.stderr and "runpy" not in done.stderr
    if "gone" in body:
        assert "gone" in done.stderr


def test_run_passes_arguments_and_modules(tmp_path, torch):
    package = tmp_path / "work"
    package.mkdir()
    (package / "program.py").write_text(
        "import sys, torch\nprint('ARGS', sys.argv[1:], __name__)\nx = torch.ones(99)\n"
    )
    done = memlab("run", "--device", "cpu", "--out", "o", "program.py", "--out", "a", "-b",
                  cwd=package)
    assert "ARGS ['--out', 'a', '-b'] __main__" in done.stdout
    done = memlab("run", "--device", "cpu", "--out", "o", "-m", "program", "x", cwd=package)
    assert "ARGS ['x'] __main__" in done.stdout, done.stderr


def test_interrupted_run_writes_and_dies_of_the_signal(tmp_path, torch):
    script = tmp_path / "program.py"
    script.write_text(
        "import os, signal, torch\nx = torch.ones(1000)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
    )
    done = memlab("run", "--device", "cpu", "--out", tmp_path / "out", script)
    assert done.returncode == -2
    assert "KeyboardInterrupt" in done.stderr
    assert (tmp_path / "out" / "report.txt").exists()


@pytest.mark.cuda
def test_out_of_memory_is_written_at_that_moment(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import torch\n"
        "kept = torch.empty(300 << 20, dtype=torch.uint8, device='cuda')\n"
        "try:\n"
        "    torch.empty(1 << 42, dtype=torch.uint8, device='cuda')\n"
        "except torch.OutOfMemoryError as error:\n"
        "    print('CAUGHT', type(error).__name__)\n"
        "del kept\n"
    )
    done = memlab("run", "--phantom=auto", "--out", tmp_path / "out", script)
    assert done.returncode == 0, done.stderr
    assert "CAUGHT OutOfMemoryError" in done.stdout
    text = (tmp_path / "out" / "report_oom.txt").read_text()
    assert "asked for 4.00 TiB" in text and "program.py:2" in text
    with open(tmp_path / "out" / "rank0_oom.pickle", "rb") as file:
        snapshot = pickle.load(file)
    last = snapshot["device_traces"][0][-1]
    assert last["action"] == "oom" and last["size"] == 1 << 42
    assert sum(s["allocated_size"] for s in snapshot["segments"]) == 300 << 20


def test_a_script_runs_as_it_would_alone(tmp_path, torch):
    """What a program can see of how it was started, with memlab and without."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside.py").write_text("VALUE = 5\n")
    (tmp_path / "sub" / "program.py").write_text(
        "import atexit, beside, pickle, sys\n"
        "class Mine: pass\n"
        "def look(when):\n"
        "    main = sys.modules['__main__']\n"
        "    print(when, sys.argv, sys.path[0], when == 'exit' or __file__, __name__,\n"
        "          __spec__, __package__, main.__dict__ is globals(), sys.exc_info(),\n"
        "          type(pickle.loads(pickle.dumps(Mine()))) is Mine)\n"
        "look('run')\n"
        "atexit.register(look, 'exit')\n"
        "sys.excepthook = lambda kind, error, tb: print('HOOK', error, tb.tb_lineno)\n"
        "raise ValueError('mine')\n"
    )
    command = ["sub/program.py", "--epochs", "3"]
    alone = subprocess.run([sys.executable, *command], cwd=tmp_path, text=True,
                           capture_output=True)
    done = memlab("run", "--device", "cpu", *command, cwd=tmp_path)
    assert alone.returncode == done.returncode == 1
    ours = [line for line in done.stdout.splitlines() if line in alone.stdout.splitlines()]
    assert ours == alone.stdout.splitlines(), done.stdout + done.stderr
    assert len(ours) == 3 and ours[1].startswith("HOOK")


def test_results_lie_where_they_were_asked_for(tmp_path, torch):
    """Though the program goes elsewhere, and leaves nothing to print on."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "program.py").write_text(
        "import os, sys, torch\nos.chdir('elsewhere')\nx = torch.ones(1000)\n"
        "sys.stdout.close()\nsys.stdout = None\n"
    )
    done = memlab("run", "--device", "cpu", "--out", "out", "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("memlab: recording the memory of the CPU\n\nPeak on cpu")
    report = (tmp_path / "out" / "report.txt").read_text()
    assert " program.py:3 <module>    x = torch.ones(1000)" in report
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.cuda
@pytest.mark.parametrize(
    "option, variables, seen",
    [
        ("--phantom", {"MEMORY": "3GiB"}, "NVIDIA H200 3.0 GiB"),
        ("--phantom", {"GPU": "l4", "MEMORY": str(3 << 30)}, "NVIDIA L4 3.0 GiB"),
        ("--phantom=t4", {"GPU": "l4", "MEMORY": "3GiB"}, "Tesla T4 3.0 GiB"),
        ("--phantom=auto", {"GPU": "l4", "MEMORY": "3GiB"}, "NVIDIA L4 3.0 GiB"),
    ],
)
def test_what_the_user_said_of_the_phantom_stands(
    tmp_path, monkeypatch, option, variables, seen
):
    from cuda_here import has_gpu

    if option == "--phantom=auto" and has_gpu():
        pytest.skip("--phantom=auto uses the GPU that is here")
    (tmp_path / "train.py").write_text(
        "import torch\nprint(torch.cuda.get_device_name(),\n"
        "      torch.cuda.mem_get_info()[1] / 2**30, 'GiB')\n"
    )
    for name in ("GPU", "DEVICES", "MEMORY", "BACKED"):
        monkeypatch.delenv(f"MEMLAB_PHANTOM_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"MEMLAB_PHANTOM_{name}", value)
    done = memlab("run", option, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert seen in done.stdout


@pytest.mark.cuda
def test_phantom_is_not_taken_for_the_program(tmp_path):
    """As README has it: memlab run --phantom train.py. The model lives to the end of the
    program in its globals, so that its parameters are known without an optimizer."""
    (tmp_path / "train.py").write_text(
        "import sys, torch\nmodel = torch.nn.Linear(512, 512, bias=False).cuda()\n"
        "print('ARGS', sys.argv[1:], torch.cuda.get_device_name())\n"
    )
    done = memlab("run", "--phantom", "train.py", "--phantom", "x", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ARGS ['--phantom', 'x'] NVIDIA H200" in done.stdout
    answer = json.loads(memlab("report", "--json", "memlab_out/rank0.pickle",
                               cwd=tmp_path).stdout)
    assert answer["devices"][0]["by_category"]["parameter"] == 512 * 512 * 4


def test_a_terminated_run_writes_and_dies_of_the_signal(tmp_path, torch):
    """A forked child dies of SIGTERM at once and writes nothing."""
    script = tmp_path / "program.py"
    script.write_text(
        "import os, signal, sys, torch\nx = torch.ones(1000)\n"
        "child = os.fork()\n"
        # Not signal.pause(): a signal that came just before it would be slept through.
        "while child == 0:\n"
        "    pass\n"
        "os.kill(child, signal.SIGTERM)\n"
        "print('CHILD', os.WTERMSIG(os.waitpid(child, 0)[1]), "
        "sorted(os.listdir(sys.argv[1])))\n"
        "sys.stdout.flush()\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "finally:\n"
        "    print('NEVER')\n"
    )
    out = tmp_path / "out"
    done = memlab("run", "--device", "cpu", "--out", out, script, out)
    assert done.returncode == -15, done.stderr
    assert "CHILD 15 ['.rank0.lock', 'rank0.mlab']" in done.stdout and "NEVER" not in done.stdout
    assert "terminated; writing" in done.stderr
    assert "program.py:2" in (out / "report.txt").read_text()


def test_an_output_that_cannot_show_everything(demo, tmp_path, torch):
    """Names outside of the terminal's encoding, and a reader that goes away."""
    script = tmp_path / "pr\u00f6g.py"
    script.write_text("import torch\nx = torch.ones(1000)\n", encoding="utf-8")
    plain = {"PYTHONIOENCODING": "ascii"}
    done = memlab("run", "--device", "cpu", "--out", tmp_path / "out", script, env=plain)
    assert done.returncode == 0 and "pr\\xf6g.py:2" in done.stderr, done.stderr
    done = memlab("report", tmp_path / "out" / "rank0.pickle", env=plain)
    assert done.returncode == 0 and "pr\\xf6g.py:2" in done.stdout, done.stderr
    read, write = os.pipe()
    os.close(read)
    out, _ = demo
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "report", "--json", out / "rank0.pickle"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=write, stderr=subprocess.PIPE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


# ---- Bad input: one line that names the thing and the remedy ----


def test_no_command_and_unknown_arguments(tmp_path, torch):
    done = memlab()
    assert done.returncode == 0 and "run a program and record its memory" in done.stdout
    done = memlab("report", "--jsn", "x")
    assert done.returncode == 2 and "--jsn" in done.stderr
    done = memlab("run", "--device", "tpu", "x.py")
    assert done.returncode == 2 and "tpu" in done.stderr
    done = memlab("run", "--max-entries", "few", "x.py")
    assert done.returncode == 2 and "'few' is not a whole number" in done.stderr
    done = memlab("run", "--max-file-bytes", "4", "x.py")
    assert done.returncode == 2 and "'4' has no unit; did you mean 4GiB?" in done.stderr
    done = memlab("run")
    assert done.returncode == 2 and done.stderr.endswith("are required: program\n")
    (tmp_path / "file").write_text("")
    (tmp_path / "x.py").write_text("print('RAN')")
    done = memlab("run", "--device", "cpu", "--out", "file", "x.py", cwd=tmp_path)
    assert done.returncode == 1 and "RAN" not in done.stdout
    assert "'file'" in one_line_error(done) and "--out" in done.stderr


def test_missing_program(tmp_path, torch):
    done = memlab("run", "--device", "cpu", "--out", tmp_path / "out", tmp_path / "no.py")
    assert done.returncode == 1
    assert "no.py" in one_line_error(done)
    done = memlab("run", "--device", "cpu", "--out", tmp_path / "out", "-m", "nosuch.part")
    assert done.returncode == 1 and "nosuch.part" in one_line_error(done)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.pickle", b"", "empty"),
        ("text.pickle", b"hello world", "not"),
        ("short.pickle", pickle.dumps({"segments": []})[:-2], ""),
        ("evil.pickle", b"cos\nsystem\n(S'touch pwned'\ntR.", ""),
        ("evil4.pickle", pickle.dumps(os.system), ""),
        ("list.pickle", pickle.dumps([1, 2, 3]), ""),
        ("gzip.pickle.gz", b"\x1f\x8b\x08\x00garbage", "gzip"),
    ],
)
def test_files_that_are_no_snapshots(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    for command in (["report"], ["view"], ["convert"]):
        extra = ["out.html"] if command == ["convert"] else []
        done = memlab(*command, name, *extra, cwd=tmp_path)
        assert done.returncode == 1
        line = one_line_error(done)
        assert name in line and says in line
    assert {p.name for p in tmp_path.iterdir()} == {name}


def test_missing_and_unreadable_files(tmp_path):
    done = memlab("report", tmp_path / "none.pickle")
    assert done.returncode == 1 and "none.pickle" in one_line_error(done)
    done = memlab("report", tmp_path)
    assert done.returncode == 1 and str(tmp_path) in one_line_error(done)


def test_a_page_that_cannot_be_written(demo, tmp_path):
    out, _ = demo
    done = memlab("view", out / "rank0.pickle", "--out", tmp_path / "no" / "page.html")
    assert done.returncode == 1 and "page.html" in one_line_error(done)
    done = memlab("convert", out / "rank0.pickle", tmp_path / "x.xyz")
    assert done.returncode == 1 and "x.xyz" in one_line_error(done)


def test_a_full_disk_is_said_and_leaves_the_old_file(demo, tmp_path):
    """A limit on file size fails writes as a full disk does."""
    out, _ = demo
    old = tmp_path / "page.html"
    old.write_text("old")
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "from memlab._cli.main import main\n"
        f"sys.exit(main(['view', {str(out / 'rank0.pickle')!r}, '--out', {str(old)!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 1, done.stderr
    assert "page.html" in one_line_error(done)
    assert old.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_two_runs_into_one_folder(tmp_path, torch):
    out = tmp_path / "out"
    out.mkdir()
    lock = os.open(out / ".rank0.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    script = tmp_path / "program.py"
    script.write_text("print('RAN')")
    done = memlab("run", "--device", "cpu", "--out", out, script)
    os.close(lock)
    assert done.returncode == 1 and "RAN" not in done.stdout
    line = one_line_error(done)
    assert str(out) in line and "--out" in line


def test_no_gpu(tmp_path, torch):
    from cuda_here import has_gpu

    if has_gpu():
        pytest.skip("this machine has a GPU")
    script = tmp_path / "program.py"
    script.write_text("print('RAN')")
    done = memlab("run", "--device", "cuda", "--out", tmp_path / "out", script)
    assert done.returncode == 1 and "RAN" not in done.stdout
    assert "--phantom" in one_line_error(done)


def test_unknown_gpu(tmp_path):
    (tmp_path / "x.py").write_text("print('RAN')")
    done = memlab("run", "--phantom=h999", "--out", tmp_path / "out", tmp_path / "x.py")
    assert done.returncode == 1
    line = one_line_error(done)
    assert "h999" in line and "h200" in line


def test_without_torch(tmp_path):
    """memlab imports, reads files and says what is missing."""
    blocker = tmp_path / "torch.py"
    blocker.write_text("raise ImportError('No module named torch')")
    done = memlab("backends", env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert done.returncode == 0, done.stderr
    script = tmp_path / "program.py"
    script.write_text("print('RAN')")
    done = memlab("run", "--device", "cpu", "--out", tmp_path / "out", script,
                  env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert done.returncode == 1
    assert "torch" in one_line_error(done)


def test_import_is_quiet_and_without_torch():
    code = (
        "import sys, memlab\n"
        "assert 'torch' not in sys.modules\n"
        "assert sys.gettrace() is None and sys.getprofile() is None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.cuda
def test_an_allocator_without_events(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("print('RAN')")
    done = memlab("run", "--phantom=auto", "--out", tmp_path / "out", script,
                  env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
                       "MEMLAB_PHANTOM_QUIET": "1"})
    assert done.returncode == 1 and "RAN" not in done.stdout
    assert "backend:cudaMallocAsync" in one_line_error(done)


def test_the_folder_of_a_run_is_as_good_as_its_file(demo):
    out, _ = demo
    for command in ("report", "explain"):
        of_folder = memlab(command, out, "--json")
        of_file = memlab(command, out / "rank0.mlab", "--json")
        assert of_folder.returncode == 0, of_folder.stderr
        left, right = json.loads(of_folder.stdout), json.loads(of_file.stdout)
        assert left["devices"] == right["devices"]
    assert memlab("diff", out, out / "rank0.mlab").stdout.startswith("The same memory")
    assert memlab("view", out).stdout == f"Page: {out / 'memlab.html'}\n"
    assert (out / "memlab.html").exists()
    (out / "memlab.html").unlink()
