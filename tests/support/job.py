"""A process that records memory of a script, as it is told to."""

import signal
import subprocess
import sys

# Takes a command a line: "alloc N MIB" and "free N", of blocks by number, "step", "end".
JOB = """
import sys
import memlab
from memlab import _core

script = _core.Script()
script.emit("segment_alloc", 1 << 40, 1 << 30)
snapshot = memlab.MemorySnapshot(source="script", file=sys.argv[1]).start()
sizes, place = {}, {}

def emit(*event):
    # A millisecond apart.
    emit.time += 1_000_000
    script.emit(*event, time=emit.time)

emit.time = 1 << 60
next_place = 1 << 40
print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "alloc":
        number, mib = rest
        place[number], sizes[number] = next_place, int(mib) << 20
        next_place += sizes[number]
        emit("alloc", place[number], sizes[number])
    elif word == "free":
        for action in ("free_requested", "free_completed"):
            emit(action, place[rest[0]], sizes[rest[0]])
    elif word == "many":
        exec("\\n" * int(rest[0]) + "emit('alloc', next_place, 1 << 20)")
        next_place += 1 << 20
    elif word == "step":
        _core.note_step()
    elif word == "phase":
        _core.begin_phase(eval(rest[0]))
    elif word == "end":
        snapshot.stop()
    print("done", flush=True)
"""


class Job:
    """A process that records what it is told to do."""

    def __init__(self, folder, name="job.mlab"):
        self.file = str(folder / name)
        program = folder / "job.py"
        program.write_text(JOB)
        self.process = subprocess.Popen(
            [sys.executable, str(program), self.file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"

    def __call__(self, *commands):
        for command in commands:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "done\n"

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()
