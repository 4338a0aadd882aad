"""Recordings to .mlab files: they outlive their process, and read back as what it was."""

import errno
import gzip
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount
from preload import shared_library

import memlab
from memlab import _core
from memlab._files.load import read_recording

HERE = Path(__file__).resolve().parents[1]
MIB = 1 << 20

# 1 MiB allocated and freed LOOPS times in a segment of 20 MiB, then 3 MiB.
PROGRAM = """
import os, signal, sys, threading
import memlab
from memlab import _core

script = _core.Script()
script.emit("segment_alloc", 1 << 40, 20 << 20)
snapshot = memlab.MemorySnapshot(source="script", file=sys.argv[1], **OPTIONS)
snapshot.start()

def loop(times):
    for i in range(times):
        script.emit("alloc", 1 << 40, 1 << 20, time=i)
        script.emit("free_requested", 1 << 40, 1 << 20, time=i)
        script.emit("free_completed", 1 << 40, 1 << 20, time=i)

loop(LOOPS)
script.emit("alloc", 1 << 40, 3 << 20, time=1 << 40)
"""


@pytest.fixture
def record(tmp_path):
    """record(ending, loops=100, options={}, prelude="", path=None): runs the lines
    PRELUDE, PROGRAM and the lines ENDING."""

    def run(ending="", loops=100, options=None, prelude="", path=None):
        program = tmp_path / "program.py"
        text = PROGRAM.replace("LOOPS", str(loops))
        text = text.replace("OPTIONS", repr(options or {}))
        program.write_text(prelude + text + ending)
        path = path or tmp_path / "run.mlab"
        done = subprocess.run(
            [sys.executable, str(program), str(path)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        return path, done

    return run


def memlab_command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "memlab", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.nightly
def test_kills_lose_nothing():
    kills = amount("KILLS", 50)
    done = subprocess.run(
        [sys.executable, str(HERE / "isolated" / "kills.py"), str(kills)],
        capture_output=True,
        text=True,
        timeout=60 + 10 * kills,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"{kills} kills: \d+ events read, 0 lost, 0 corrupt", done.stdout)


@pytest.mark.cuda
@pytest.mark.nightly
def test_kills_of_training_lose_nothing(phantom_run):
    """By torch's own statistics after each step."""
    kills = amount("TRAINING_KILLS", 4)
    program = HERE / "isolated" / "training_kills.py"
    done = phantom_run(program, kills, timeout=60 + 30 * kills)
    print(done.stdout)
    assert f"{kills} kills: " in done.stdout


@pytest.mark.parametrize(
    "ending, status",
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os._exit(3)", 3),
        ("os.abort()", -signal.SIGABRT),
    ],
)
def test_an_end_without_notice(record, ending, status):
    path, done = record(ending)
    assert done.returncode == status
    recording = read_recording(path)
    assert recording.file["state"] == "cut off"
    assert recording.counts(0)["events"] == 301
    assert recording.peak(0)["peak"]["allocated_bytes"] == 3 << 20
    text = memlab_command("report", path).stdout
    assert "was not ended" in text
    assert "Peak on script:0: 3.00 MiB" in text


@pytest.mark.parametrize("ending", ["snapshot.stop()", "", "sys.exit(0)", "1 / 0"])
def test_an_end_in_order(record, ending):
    path, _ = record(ending)
    assert read_recording(path).file["state"] == "ended"
    assert "ended" not in memlab_command("report", path).stdout


#: What torch counted, per device: the most allocated, what was at the end, reserved.
MEMORY_IN_PARTS = {
    "device1": [(0, 0, 0), (64 * MIB + 1024, 1024, 66 * MIB)],
    "two_devices": [(35 * MIB, 3 * MIB, 52 * MIB)]
    + [(69 * MIB + 1024,) * 2 + (86 * MIB,)],
}


@pytest.mark.parametrize("name, expected", MEMORY_IN_PARTS.items())
def test_a_file_of_the_first_writer_tells_all_memory(tmp_path, name, expected):
    path = tmp_path / f"{name}.mlab"
    path.write_bytes(gzip.decompress((HERE / f"data/mlab/{name}.mlab.gz").read_bytes()))
    recording = read_recording(path)
    segments = recording.to_dict()["segments"]
    for device, (peak, end, reserved) in enumerate(expected):
        mine = [s for s in segments if s["device"] == device]
        assert recording.peak(device)["peak"]["allocated_bytes"] == peak
        assert recording.peak(device)["whole_peak"]["allocated_bytes"] == peak
        assert sum(s["allocated_size"] for s in mine) == end
        assert sum(s["total_size"] for s in mine) == reserved
    assert recording.file["repeated_starts"] == sum(bool(peak) for peak, *_ in expected)
    assert "the start is in the file in parts" in memlab_command("report", path).stdout


def test_it_reads_as_the_pickle_does(record, tmp_path):
    path, _ = record(f"snapshot.save({str(tmp_path / 'run.pickle')!r})")
    from_file = memlab.load(path)
    from_pickle = memlab.load(tmp_path / "run.pickle")
    # To save is to look at the memory, which is an event of its own.
    assert [trace.pop()["action"] for trace in from_file["device_traces"]] == [
        "snapshot"
    ] * 4
    assert from_file["device_traces"] == from_pickle["device_traces"]
    assert from_file["segments"] == from_pickle["segments"]
    assert memlab_command("convert", path, tmp_path / "b.pickle").returncode == 0
    again = memlab.load(tmp_path / "b.pickle")
    for trace in again["device_traces"]:
        trace.pop()
    assert again["device_traces"] == from_pickle["device_traces"]
    answers = [
        json.loads(memlab_command("report", file, "--json").stdout)["devices"]
        for file in (path, tmp_path / "run.pickle", tmp_path / "b.pickle")
    ]
    assert answers[0] == answers[2]
    assert answers[0][0]["peak"] == answers[1][0]["peak"]
    assert answers[0][0]["by_line"] == answers[1][0]["by_line"]
    assert memlab_command("view", path).returncode == 0
    assert (tmp_path / "run.html").exists()


def test_a_live_file_is_read(tmp_path):
    script = _core.Script()
    script.emit("segment_alloc", 1 << 40, 2 << 20)
    path = tmp_path / "run.mlab"
    with memlab.MemorySnapshot(source="script", file=path):
        for i in range(300):
            before = read_recording(path)
            assert before.file["state"] == "recording"
            assert before.counts(0)["events"] == i
            script.emit("alloc", (1 << 40) + 512 * i, 512)
    # To stop is to look at the memory, which is an event of its own.
    assert read_recording(path).counts(0)["events"] == 300 + 1
    script.reset()


def test_the_limit_of_the_file(record):
    """Room for 16 chunks of 64 KiB: more than 100,000 events are not."""
    limit = 17 << 16
    path, done = record(loops=60_000, options={"max_file_bytes": limit})
    assert done.returncode == 0
    assert done.stderr.count("memlab:") == 1
    assert "the limit of the file's size was reached" in done.stderr
    assert path.stat().st_size <= limit
    recording = read_recording(path)
    kept = recording.counts(0)["events"]
    assert 60_000 < kept < 180_001
    (gap,) = recording.file["gaps"]
    assert gap == {"device": 0, "position": kept, "dropped": 180_001 - kept, "lost": 0}
    assert recording.counts(0)["dropped_events"] == 180_001 - kept
    assert "Not everything was stored" in memlab_command("report", path).stdout


def test_a_file_too_large_for_the_process(record):
    """RLIMIT_FSIZE, whose signal would end the process."""
    prelude = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
    prelude += "resource.setrlimit(resource.RLIMIT_FSIZE, (24 << 16, 24 << 16))\n"
    path, done = record(loops=120_000, prelude=prelude)
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stderr
    recording = read_recording(path)
    kept = recording.counts(0)["events"]
    (gap,) = recording.file["gaps"]
    assert kept + gap["dropped"] == 360_001
    assert gap["position"] == kept


@pytest.fixture
def small_disk(tmp_path):
    """The folder of a file system with room for 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "memlab-test", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no small file system can be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(record, small_disk):
    path, done = record("print('alive')", loops=120_000, path=small_disk / "run.mlab")
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
    assert "the file could not grow (No space left on device)" in done.stderr
    recording = read_recording(path)
    kept = recording.counts(0)["events"]
    (gap,) = recording.file["gaps"]
    assert gap == {"device": 0, "position": kept, "dropped": 360_001 - kept, "lost": 0}
    assert kept > 0
    report = memlab_command("report", path).stdout
    assert f"{360_001 - kept} events were not stored after event {kept}" in report


def test_a_disk_that_is_full_already(record, small_disk):
    (small_disk / "weights").write_bytes(bytes(2 << 20))
    path, done = record(path=small_disk / "run.mlab")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("No space left on device")
    assert not path.exists()


@pytest.mark.parametrize("error", [errno.ENODEV, errno.EINVAL])
def test_a_file_system_that_maps_no_files(tmp_path, torch, error):
    source = HERE / "helpers" / "no_shared_mmap.c"
    library = shared_library(source, tmp_path / "no_mmap.so", f"-DERRNUM={error}")
    (tmp_path / "program.py").write_text("import torch\nx = torch.ones(1000)\n")
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "run", "--device", "cpu", "program.py"],
        env={**os.environ, "LD_PRELOAD": str(library)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "recording without" in done.stderr
    assert "cannot map files into memory; choose a file on another" in done.stderr
    assert "rank0.mlab" not in done.stdout
    out = tmp_path / "memlab_out"
    assert not (out / "rank0.mlab").exists()
    report = memlab_command("report", out / "rank0.pickle").stdout
    assert "program.py:2 <module>" in " ".join(report.split())


@pytest.mark.cuda
def test_native_frames_are_said_to_be_addresses(tmp_path):
    program = "import torch\nx = torch.ones(1000, device='cuda')\n"
    (tmp_path / "program.py").write_text(program)
    run = "run", "--phantom=auto", "--stacks", "all", "--out", tmp_path
    done = memlab_command(*run, tmp_path / "program.py")
    assert done.returncode == 0, done.stderr
    sentence = "C++ frames are shown as addresses"
    assert sentence in memlab_command("report", tmp_path / "rank0.mlab").stdout
    assert sentence not in memlab_command("report", tmp_path / "rank0.pickle").stdout
    (event,) = [
        event
        for event in memlab.load(tmp_path / "rank0.mlab")["device_traces"][0]
        if event["action"] == "alloc" and event["size"] == 4000
    ]
    names = [frame["name"] for frame in event["frames"]]
    native = sum(name.startswith("0x") for name in names)
    assert native > 0 and names[native] == "<module>", names


def test_another_process_removes_the_file(record):
    ending = """
os.unlink(sys.argv[1])
loop(50_000)
snapshot.stop()
print("alive")
"""
    path, done = record(ending)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
    assert "another process cut or removed the file" in done.stderr
    assert not path.exists()


def test_another_process_cuts_the_file(record):
    ending = """
os.truncate(sys.argv[1], 2 << 16)
loop(50_000)
snapshot.stop()
print("alive")
"""
    path, done = record(ending)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
    assert "another process cut or removed the file" in done.stderr
    recording = read_recording(path)
    lost = sum(gap["dropped"] + gap["lost"] for gap in recording.file["gaps"])
    # With the look at the end at each of the script's four devices.
    assert recording.counts(0)["events"] + lost == 301 + 150_000 + 4


def test_two_recordings_of_one_file(tmp_path):
    path = tmp_path / "run.mlab"
    _core.Script()
    with memlab.MemorySnapshot(source="script", file=path):
        with pytest.raises(memlab.Error, match="is being recorded already"):
            memlab.MemorySnapshot(source="script", file=path).start()
    memlab.MemorySnapshot(source="script", file=path).start().stop()


def test_only_recordings_are_replaced(tmp_path):
    _core.Script()
    path = tmp_path / "model.pt"
    path.write_text("weights")
    with pytest.raises(memlab.Error, match="is no recording of memlab"):
        memlab.MemorySnapshot(source="script", file=path).start()
    assert path.read_text() == "weights"
    with pytest.raises(memlab.Error, match="No such file or directory"):
        memlab.MemorySnapshot(source="script", file=tmp_path / "no" / "a.mlab").start()


def test_a_forked_child_writes_nothing(record):
    ending = """
if os.fork() == 0:
    loop(1000)
    snapshot.stop()
    os._exit(0)
os.wait()
snapshot.stop()
"""
    path, done = record(ending)
    assert done.returncode == 0, done.stderr
    recording = read_recording(path)
    assert recording.counts(0)["events"] == 301 + 1
    assert recording.file["state"] == "ended"


def test_a_forked_child_ends_as_any_other(record):
    """Its interpreter lets go of the parent's recording, whose thread it has not."""
    ending = """
if os.fork() == 0:
    signal.alarm(60)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
snapshot.stop()
"""
    path, done = record(ending)
    assert done.returncode == 0, done.stderr
    assert read_recording(path).file["state"] == "ended"


def test_a_bus_error_of_the_program_ends_it_as_ever(record):
    """Where faulthandler was set between two files: each is the other's predecessor."""
    ending = """
import faulthandler
faulthandler.enable()
snapshot.stop()
snapshot.start()
os.kill(os.getpid(), signal.SIGBUS)
"""
    _, done = record(ending)
    assert done.returncode == -signal.SIGBUS, done.stderr
    assert done.stderr.count("Fatal Python error: Bus error") == 1


@pytest.mark.usefixtures("torch")
def test_a_forked_child_can_train(tmp_path):
    program = """
import os, signal, sys
import torch
import memlab

torch.set_num_threads(1)

def train():
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()

snapshot = memlab.MemorySnapshot(source="cpu", file=sys.argv[1]).start()
train()
if os.fork() == 0:
    signal.alarm(60)
    with memlab.phase("child"):
        memlab.mark("child")
        train()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
train()
snapshot.stop()
"""
    path = tmp_path / "run.mlab"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    recording = read_recording(path)
    kinds = [note["kind"] for note in recording.notes()]
    assert "step" in kinds and "mark" not in kinds and "phase_begin" not in kinds


def test_a_newer_file_is_refused(record, tmp_path):
    path, _ = record()
    data = bytearray(path.read_bytes())
    data[16] |= 4
    path.write_bytes(data)
    with pytest.raises(memlab.SnapshotError, match="header is damaged"):
        memlab.load(path)
    data = data[:1000]
    path.write_bytes(data)
    with pytest.raises(memlab.SnapshotError, match=r"run\.mlab.*within its header"):
        memlab.load(path)


def test_damage_is_counted_and_left_out(record):
    path, _ = record(loops=30_000)
    data = bytearray(path.read_bytes())
    chunk = 1 << 16
    lanes = [
        at
        for at in range(chunk, len(data), chunk)
        if data[at : at + 4] == b"MLCK" and data[at + 6] == 0
    ]
    # The second chunk of the lane, in the middle of its records.
    (second,) = [at for at in lanes if struct.unpack_from("<Q", data, at + 16) == (1,)]
    data[second + 1000] ^= 0x40
    path.write_bytes(data)
    recording = read_recording(path)
    assert recording.file["damaged_chunks"] == 1
    (gap,) = recording.file["gaps"]
    (third,) = [at for at in lanes if struct.unpack_from("<Q", data, at + 16) == (2,)]
    first_of = [struct.unpack_from("<Q", data, at + 24)[0] for at in (second, third)]
    assert gap["position"] == first_of[0]
    assert gap["lost"] == first_of[1] - first_of[0]
    assert recording.counts(0)["events"] == 90_001 - gap["lost"]


def test_lost_owners_and_notes_are_counted(record):
    """The only chunk of the control lane is damaged: all of its records are lost."""
    path, _ = record("memlab.mark('here')\nsnapshot.stop()\n")
    whole = read_recording(path)
    assert whole.file["lost_records"] == 0
    assert "are lost" not in memlab_command("report", path).stdout
    data = bytearray(path.read_bytes())
    chunk = 1 << 16
    (control,) = [
        at
        for at in range(chunk, len(data), chunk)
        if data[at : at + 4] == b"MLCK" and data[at + 6] == 1
    ]
    data[control + 64 + 10] ^= 1
    path.write_bytes(data)
    # In the header the control lane is the last of 65, of 64 bytes each.
    (written,) = struct.unpack_from("<Q", data, 192 + 64 * 64)
    about = read_recording(path).file
    assert about["lost_records"] == written > 0
    assert about["damaged_chunks"] == 1
    assert f"settings that are lost: {written}" in memlab_command("report", path).stdout


def test_records_that_cannot_be_read_are_counted(record, tmp_path):
    """The kind of the last record is turned into one that nobody knows."""
    path, _ = record("memlab.mark('here')\nsnapshot.stop()\n")
    data = bytearray(path.read_bytes())
    chunk = 1 << 16
    (control,) = [
        at
        for at in range(chunk, len(data), chunk)
        if data[at : at + 4] == b"MLCK" and data[at + 6] == 1
    ]
    begin, at = control + 64, control + 64
    (used,) = struct.unpack_from("<I", data, control + 40)
    while at < begin + used:
        last = at
        at += 5 + struct.unpack_from("<I", data, at + 1)[0]
    data[last] |= 0xF0
    checksum = crc32c(data[begin : begin + used])
    struct.pack_into("<I", data, control + 44, checksum)
    path.write_bytes(data)
    about = read_recording(path).file
    assert (about["unread_records"], about["damaged_chunks"]) == (1, 0)
    report = memlab_command("report", path).stdout
    assert "Records of the file that this memlab cannot read: 1;" in report


def crc32c(data):
    """As RFC 3720 defines it, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@pytest.mark.cuda
def test_a_training_run_answers_as_its_pickle_does(tmp_path, phantom_run):
    """The same modules, lines, categories, phases and totals, of a model made before
    the recording and of one made within it."""
    program = tmp_path / "train.py"
    program.write_text("""
import sys, torch, memlab
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 512)
        self.down = nn.Linear(512, 256)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

def train(model):
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        with memlab.phase("loss"):
            loss = model(torch.randn(64, 256, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

early = nn.Sequential(Block(), Block()).cuda()
snapshot = memlab.MemorySnapshot(file=sys.argv[1])
snapshot.start()
train(early)
train(nn.Sequential(Block(), nn.LayerNorm(256), Block()).cuda())
snapshot.save(sys.argv[2])
""")
    paths = [tmp_path / "run.mlab", tmp_path / "run.pickle"]
    phantom_run(program, *paths)
    (from_file,), (from_pickle,) = [
        json.loads(memlab_command("report", path, "--json").stdout)["devices"]
        for path in paths
    ]
    # To save is to look at the memory, which is an event of its own.
    assert from_file.pop("events") == from_pickle.pop("events") + 1
    for answer in (from_file, from_pickle):
        # Rows of one size come in any order.
        for key in [key for key, value in answer.items() if isinstance(value, list)]:
            answer[key].sort(key=json.dumps)
    # Times are converted from ticks by each, at another moment.
    for key, time in (
        ("peak", "time_us"),
        ("gpu", "time_us"),
        ("gpu", "after_us"),
        ("host", "time_us"),
        ("host", "after_us"),
    ):
        ours, theirs = (answer[key].pop(time) for answer in (from_file, from_pickle))
        assert abs(ours - theirs) <= 1000
    assert from_file == from_pickle
    modules = {row["module"] for row in from_file["by_module"]}
    assert any(name.endswith("0.up") for name in modules), modules
    categories = from_file["by_category"]
    assert {"parameter", "gradient", "optimizer_state", "activation"} <= {
        name for name, size in categories.items() if size
    }, categories
