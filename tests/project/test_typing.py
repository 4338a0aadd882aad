"""What a type checker makes of programs that use memlab, by its stubs and annotations."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Each line that the checker speaks of says what, after #.
PROGRAM = """\
import memlab
from memlab import _core

with memlab.MemorySnapshot(max_entries=10, file="run.mlab") as snapshot:
    with memlab.phase("train"):
        memlab.mark("begun")
        memlab.step()
reveal_type(snapshot.peak()["by_line"][0]["bytes"])  # "int"
reveal_type(snapshot.data().notes()[0]["values"])  # "list[int | None]"
reveal_type(snapshot.start().stop().summary())  # "str"
reveal_type(memlab.ledger("cuda:0")["lines"]["unknown_bytes"])  # "int | None"
reveal_type(memlab.stats()["events"])  # "int"
reveal_type(memlab.backends()["cuda"]["reason"])  # "str"
reveal_type(_core.Recording.from_file(b"run.mlab").counts(0)["segments"])  # "int"

recording = memlab.open("run.mlab")
reveal_type(recording)  # "memlab._recording.recording.Recording"
reveal_type(recording.devices)  # "dict[int, str]"
reveal_type(recording.at("end")["peak"]["allocated_bytes"])  # "int"
reveal_type(recording.modules()[0]["share"])  # "str"
reveal_type(recording.diff(snapshot)["difference"]["after_bytes"])  # "int"
reveal_type(snapshot.diff("run.mlab", at=("step:1", "step:2"))["after"]["file"])  # "str"
reveal_type(memlab.explain(recording)["devices"][0]["tried"])  # "int"
reveal_type(memlab.report(snapshot.data())["devices"][0]["name"])  # "str"
reveal_type(memlab.merge(["a", b"b"]).ranks()["worst"])  # "int | None"
reveal_type(recording.events()["bytes"])  # "typing.Sequence[Any]"
reveal_type(memlab.view(recording))  # "str"
memlab.convert(recording, "run.csv", table="events")
memlab.open(3)  # [arg-type]
memlab.diff(recording, at=3)  # [arg-type]
recording.peak("cuda:0")  # [arg-type]

oom = snapshot.data().oom(0)
oom["verdict"]  # [index]
if oom is not None:
    reveal_type(oom["request"]["pool"])  # "list[int] | None"

@memlab.phase("count")
def count(number: int) -> str:
    return str(number)

reveal_type(count(1))  # "str"
count("one")  # [arg-type]
memlab.record_memory_history(None)
memlab.record_memory_history(enabled="all", context="all", max_entries=5)
memlab.record_memory_history("everything")  # [arg-type]
memlab.mark(3)  # [arg-type]
memlab.MemorySnapshot(stacks="c++")  # [arg-type]
snapshot.peak()["nothing"]  # [typeddict-item]
_core.Recording.from_file("x").counts("a")  # [arg-type]
_core.write_file(3, b"")  # [arg-type]
"""

# None of it is of torch's types, and reading all of torch takes ten times as long.
SETTINGS = """\
[mypy]
[mypy-torch.*]
follow_imports = skip
ignore_missing_imports = True
"""


def test_mypy_sees_the_types_and_what_does_not_fit(tmp_path):
    mypy = shutil.which("mypy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if mypy is None:
        pytest.skip("mypy is not installed (pip install mypy)")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    settings = tmp_path / "mypy.ini"
    settings.write_text(SETTINGS)
    done = subprocess.run(
        [mypy, "--config-file", settings, "--follow-imports=silent", "--ignore-missing-imports", "--no-error-summary",
         "--cache-dir", str(tmp_path / "cache"), program.name],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    said = {}
    for line in done.stdout.splitlines():
        _, number, kind, words = line.split(":", 3)
        if kind.strip() == "error":
            said[int(number)] = re.search(r"\[[\w-]+\]$", words)[0]
        elif "Revealed type is" in words:
            said[int(number)] = re.search('".*"', words)[0].replace("builtins.", "")
    expected = {
        number: line.split("  # ")[1]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "  # " in line
    }
    assert said == expected, done.stdout + done.stderr
