"""Subinterpreters of every setting refuse memlab, while the main one records."""

import sys

try:
    import _interpreters as interpreters  # CPython 3.13 on
except ImportError:
    import _xxsubinterpreters as interpreters

import memlab
from memlab import _core

PROGRAM = f"""
import sys
sys.path[:] = {sys.path!r}
for _ in range(2):
    try:
        import memlab
    except ImportError as error:
        assert "interpreter" in str(error), error
    else:
        raise AssertionError("a subinterpreter imported memlab")
"""


def run(*config):
    other = interpreters.create(*config)
    try:
        if hasattr(interpreters, "exec"):
            failure = interpreters.exec(other, PROGRAM)
            assert failure is None, failure
        else:
            interpreters.run_string(other, PROGRAM)
    finally:
        interpreters.destroy(other)


script = _core.Script()
script.reset()
with memlab.MemorySnapshot(source="script") as snapshot:
    script.emit("segment_alloc", 1 << 30, 1 << 21)
    for _ in range(3):
        for config in ([["legacy"], ["isolated"]] if sys.version_info >= (3, 13) else [[]]):
            run(*config)
    script.emit("alloc", 1 << 30, 1000)
trace = snapshot.data().to_dict()["device_traces"][0]
assert [e["size"] for e in trace if e["action"] != "snapshot"] == [1 << 21, 1000], trace
