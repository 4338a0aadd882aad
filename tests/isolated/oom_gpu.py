"""A hundred forced out of memory, caught and tried again: the errors with memlab against
those without, memlab's totals against torch's after each, and the account of the last.

Runs itself twice, alone and recorded, on whatever CUDA device there is; prints figures.

    oom_gpu.py [TIMES]
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20
TOTALS = ("allocated", "active", "requested", "reserved")


def requests(torch, times):
    """What to ask for, with memory fragmented, limited and plain in turn."""
    free, total = torch.cuda.mem_get_info()
    holes = [torch.empty(5 * MIB, dtype=torch.uint8, device="cuda") for _ in range(64)]
    most = torch.empty(free // 2, dtype=torch.uint8, device="cuda")
    del holes[::2]
    for i in range(times):
        if i % 3 == 0:
            yield 2 * total
        elif i % 3 == 1:
            yield torch.cuda.mem_get_info()[0] + 64 * MIB
        else:
            # Of the whole device: what is taken already is above it.
            torch.cuda.set_per_process_memory_fraction(0.25)
            yield 16 * MIB
            torch.cuda.set_per_process_memory_fraction(1.0)
    del most


def check_totals(torch, memlab):
    theirs = torch.cuda.memory_stats()
    ours = memlab.stats(0)
    for name in TOTALS:
        want = theirs[f"{name}_bytes.all.current"]
        assert ours[f"{name}_bytes"] == want, (name, ours, want)
    return {name: theirs[f"{name}_bytes.all.current"] for name in TOTALS}


def child(times, folder):
    import torch

    torch.cuda.init()
    snapshot = None
    if folder:
        import memlab
        from memlab._files import load

        snapshot = memlab.MemorySnapshot(on_oom=folder).start()
    errors, seconds, at = [], 0.0, None
    for size in requests(torch, times):
        begin = time.perf_counter()
        try:
            torch.empty(size, dtype=torch.uint8, device="cuda")
            errors.append("none")
        except torch.OutOfMemoryError as error:
            seconds += time.perf_counter() - begin
            # Figures and process ids are of the moment; the words are torch's.
            errors.append(f"{type(error)} {re.sub('[0-9.]+', 'N', str(error))}")
        if folder:
            at = check_totals(torch, memlab)
    answer = None
    if snapshot is not None:
        answer = snapshot.data().oom(0)
        snapshot.stop()
        for name in TOTALS:
            assert answer["at"][f"{name}_bytes"] == at[name], (name, answer["at"], at)
        assert answer["mismatches"] == 0
        (last,) = Path(folder).glob("*_last.pickle")
        answer = load.read_recording(str(last)).oom(0)
    print(json.dumps({
        "errors": errors,
        "ms": 1000 * seconds / times,
        "num_ooms": torch.cuda.memory_stats()["num_ooms"],
        "count": answer and answer["count"],
        "verdict": answer and answer["verdict"],
    }))


def main(times):
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for where in ("", folder):
            command = [sys.executable, __file__, str(times), "child", where]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stdout + done.stderr)
            results.append(json.loads(done.stdout.splitlines()[-1]))
    alone, recorded = results
    assert alone["errors"] == recorded["errors"], "the errors differ"
    assert "none" not in alone["errors"], "a request was served"
    assert alone["num_ooms"] == recorded["num_ooms"] == recorded["count"] == times
    print(f"{times} out of memory: errors equal, totals equal after each")
    print(f"an out of memory: {alone['ms']:.2f} ms alone, {recorded['ms']:.2f} ms recorded")
    print(f"the last: {recorded['verdict']}")


if __name__ == "__main__":
    if sys.argv[2:3] == ["child"]:
        child(int(sys.argv[1]), sys.argv[3])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
