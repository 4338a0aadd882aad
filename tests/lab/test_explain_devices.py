"""Advice for each of two devices, of a program that trains on one after the other."""

import json
from pathlib import Path

import pytest
from cuda_here import KEEPS_WORKSPACES

WASTES = Path(__file__).parents[1] / "programs" / "wastes"

TRAINS = """
import json, runpy, sys
import memlab, torch

found = {}
for path in sys.argv[1:]:
    main = runpy.run_path(path)["main"]
    with memlab.MemorySnapshot() as snapshot:
        torch.cuda.set_device(0)
        main(True)
        torch.cuda.set_device(1)
        main(False)
    devices = memlab.explain(snapshot.data())["devices"]
    found[path] = {each["device"]: [item["kind"] for item in each["advice"]] for each in devices}
print(json.dumps(found))
"""

KINDS = {
    "graph_shared": "graph_shared",
    "predictions_kept": "results_kept",
    "history_kept": "steps_kept",
}


@pytest.mark.cuda
def test_what_the_second_training_wastes_is_told_of_its_device(phantom_run):
    paths = [WASTES / f"{name}.py" for name in KINDS]
    done = phantom_run(TRAINS, *paths, env={**KEEPS_WORKSPACES, "MEMLAB_PHANTOM_DEVICES": "2"})
    found = json.loads(done.stdout)
    for path, kind in zip(paths, KINDS.values(), strict=True):
        first, second = found[str(path)]["0"], found[str(path)]["1"]
        assert kind in second and kind not in first
