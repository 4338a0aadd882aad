"""Prints the caching allocator's peaks as one line of JSON, for the tests to read."""

import json

import torch


def show():
    stats = torch.cuda.memory_stats()
    print(
        json.dumps(
            {
                "allocated_bytes": stats["allocated_bytes.all.peak"],
                "reserved_bytes": stats["reserved_bytes.all.peak"],
                "allocations": stats["allocation.all.allocated"],
            }
        )
    )
