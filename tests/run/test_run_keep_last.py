"""`memlab run --keep-last`: the file of a run that ends out of memory has its last part."""

import re

import pytest
from cuda_here import KEEPS_WORKSPACES

import memlab
from memlab._files.load import read_recording
from memlab._report import report

pytestmark = pytest.mark.cuda

# Two GPUs; on one each second step leaves 2 MiB behind, and at the end memory runs out.
PROGRAM = """
import os
kept = []
def leave():
    kept.append(torch.empty(2 << 20, dtype=torch.uint8, device="cuda:0"))
models = [torch.nn.Linear(64, 64).to(device) for device in ("cuda:0", "cuda:1")]
optimizer = torch.optim.SGD([p for model in models for p in model.parameters()])
if os.fork() == 0:
    os._exit(0)
for step in range(130):
    for device, model in enumerate(models):
        model(torch.randn(256, 64, device=f"cuda:{device}")).square().mean().backward()
        for size in range(500):
            torch.empty(1000 * size + 1, dtype=torch.uint8, device=f"cuda:{device}")
    if step % 2 == 0:
        leave()
    optimizer.step()
    optimizer.zero_grad()
torch.empty(1 << 40, dtype=torch.uint8, device="cuda:0")
"""


def test_out_of_memory_after_much_was_dropped(run, tmp_path):
    done = run(PROGRAM, "--keep-last", "20steps", status=1, env=KEEPS_WORKSPACES)
    whole = memlab.load(str(tmp_path / "memlab_out" / "rank0.pickle"))
    last = read_recording(str(tmp_path / "memlab_out" / "rank0.mlab"))
    assert last.file["gone_steps"] > 50 and last.file["state"] == "ended"
    assert not last.file["gaps"] and not last.file["unread_records"]
    assert not last.file["unknown_starts"] and not last.file["lost_records"]
    ours = last.to_dict()
    for device in 0, 1:
        kept, theirs = events(ours, device), events(whole, device)
        assert kept == theirs[-len(kept) :]
        # Those looks that were dropped count, too.
        gone = last.counts(device)["overwritten_events"]
        assert gone >= len(theirs) - len(kept) > 10_000
    assert blocks(ours) == blocks(whole)
    # No step of the part that is kept allocated it.
    assert last.peak(0)["by_category"]["parameter"] == 64 * 64 * 4 + 512
    # Nor the workspaces of libraries.  Only its forward tells cuBLASLt's 1 MiB from a tensor;
    # torch 2.15 has none.
    everything = memlab.open(tmp_path / "memlab_out" / "rank0.pickle").peak(0)
    workspaces = last.peak(0)["by_category"]["workspace"]
    assert workspaces > 0
    assert everything["by_category"]["workspace"] - workspaces in (0, 1 << 20)
    text = report.text(last)
    assert re.search(r"Dropped: \d+ events and \d+ steps", text.replace("\n    ", " "))
    # Sentences of 80 columns break a longer path behind a slash.
    verdict = " ".join(text.split("Verdict:")[1].split()).replace("/ ", "/")
    assert re.search(r"Out of memory .*at \S*program.py:\d+ <module>", verdict)
    assert re.search(r"Grows by .* a step since step \d+: \S*program.py:\d+ leave", verdict)
    assert "global `kept[...]` of module `__main__`" in verdict
    assert "without" not in done.stderr


def events(snapshot, device):
    """Without memlab's own looks at the memory, of which the file has one more, and
    without the times, which may differ by rounding.
    """
    return [
        (event["action"], event["size"])
        for event in snapshot["device_traces"][device]
        if event["action"] != "snapshot"
    ]


def blocks(snapshot):
    return sorted(
        (segment["device"], block["address"], block["size"], block["state"])
        for segment in snapshot["segments"]
        for block in segment["blocks"]
    )


def test_one_limit_of_the_two(run):
    done = run("", "--keep-last", "4GiB", "--max-file-bytes", "5000000", status=2)
    assert "not allowed with argument" in done.stderr
    done = run("", "--keep-last", "often", status=2)
    assert "must be a number of steps or of bytes, such as '50steps' or '4GiB'" in done.stderr
