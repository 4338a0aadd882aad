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


def record(main, mended, uses=True):
    gc.collect()
    torch.cuda.memory._set_allocator_settings("")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with memlab.MemorySnapshot(uses=uses) as snapshot:
        main(mended)
    return snapshot.data(), peaks()


def run(argument):
    name, _, without = argument.partition(" without ")
    main = importlib.import_module(name).main
    recording, before = record(main, False, uses=not without)
    mended, after = record(main, True, uses=not without)
    explained, clean = (memlab.explain(r)["devices"][0] for r in (recording, mended))
    return {"explained": explained, "clean": clean, "before": before, "after": after}


record(importlib.import_module("activations").main, False)  # what libraries keep for good
json.dump({name: run(name) for name in sys.argv[1:]}, sys.stdout)
