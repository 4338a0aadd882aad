"""Runs the programs of wastes/ that are named, each as it is and mended; prints as JSON by
name what memlab.explain() says of the first, and the peaks that torch counted in both.
After a name, " without uses" has the last uses not recorded."""

import gc
import importlib
import json
import sys
from pathlib import Path

import torch

import memlab

sys.path.insert(0, str(Path(__file__).parent / "wastes"))


def peaks():
    stats = torch.cuda.memory_stats()
    return {key: stats[f"{key}_bytes.all.peak"] for key in ("allocated", "reserved")}


def record(name, mended, uses=True):
    main = importlib.import_module(name).main
    # What the program before left in globals goes.
    gc.collect()
    torch.cuda.memory._set_allocator_settings("")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with memlab.MemorySnapshot(uses=uses) as snapshot:
        main(mended)
    del sys.modules[name]
    return snapshot.data(), peaks()


def run(argument):
    name, _, without = argument.partition(" without ")
    recording, before = record(name, False, uses=not without)
    mended, after = record(name, True, uses=not without)
    explained, clean = (memlab.explain(r)["devices"][0] for r in (recording, mended))
    return {"explained": explained, "clean": clean, "before": before, "after": after}


record("activations", False)  # what libraries keep for good
json.dump({name: run(name) for name in sys.argv[1:]}, sys.stdout)
