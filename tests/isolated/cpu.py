"""A training on the CPU, recorded: events, live memory, results, and life after stop()."""

import threading

import torch
from torch import nn

import memlab

KIB = 1 << 10


def train(seed=0):
    """Losses and weights after five steps; deterministic."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 7))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(torch.randn(50, 100)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach().clone() for parameter in model.parameters()]


def replay(trace):
    """Follows the events one by one: (live {address: size}, peak bytes)."""
    live, requested = {}, set()
    now = peak = 0
    last = 0
    for event in trace:
        address, size = event["addr"], event["size"]
        assert event["time_us"] >= last, "events are in the order of time"
        last = event["time_us"]
        if event["action"] == "alloc":
            assert address not in live, f"{address:#x} was handed out twice"
            live[address] = size
            now += size
            peak = max(peak, now)
        elif event["action"] == "free_requested":
            if address in live:
                assert live[address] == size and address not in requested
                requested.add(address)
        elif event["action"] == "free_completed":
            if address in live:
                requested.remove(address)
                now -= live.pop(address)
        else:
            raise AssertionError(event)
    assert not requested
    return live, peak


def blocks_of(snapshot):
    segments = snapshot["segments"]
    assert all(len(s["blocks"]) == 1 for s in segments)
    return {s["address"]: s["total_size"] for s in segments}


def check_training():
    plain = train()
    with memlab.MemorySnapshot(source="cpu", max_entries=1_000_000) as recorder:
        begun = memlab.stats("cpu")
        recorded = train()
        keep = torch.empty(333 * KIB, dtype=torch.uint8)
        ended = memlab.stats("cpu")
    assert plain[0] == recorded[0], "the same losses to the last bit"
    assert all(torch.equal(*pair) for pair in zip(plain[1], recorded[1]))
    assert begun["allocated_bytes"] == 0

    snapshot = recorder.data().to_dict()
    live, peak = replay(snapshot["device_traces"][0])
    assert live == blocks_of(snapshot)
    assert sum(live.values()) == ended["allocated_bytes"] == ended["reserved_bytes"]
    assert peak == ended["allocated_bytes_peak"]
    expected = {t.data_ptr(): t.nbytes for t in (*recorded[1], keep)}
    assert expected.items() <= live.items()
    assert ended["dropped_events"] == ended["lost_stacks"] == 0
    here = [e for e in snapshot["device_traces"][0] if e["addr"] == keep.data_ptr()]
    assert here[-1]["frames"][0]["name"] == "check_training", here[-1]
    return recorded, keep


def check_life_after_stop(survivors):
    """Tensors that outlive the recording are freed as ever, and are not seen later."""
    del survivors
    second = memlab.MemorySnapshot(source="cpu").start()
    old = torch.empty(100 * KIB, dtype=torch.uint8)
    second.stop()
    third = memlab.MemorySnapshot(source="cpu").start()
    address = old.data_ptr()
    del old
    third.stop()
    trace = third.data().to_dict()["device_traces"][0]
    mine = [event["action"] for event in trace if event["addr"] == address]
    assert mine == ["free_requested", "free_completed"], "it was there before"


def check_threads():
    """Eight threads, whose events are merged by time; every block is accounted for."""
    kept = [[] for _ in range(8)]
    go = threading.Barrier(8)

    def work(number):
        go.wait()
        for i in range(300):
            block = torch.empty(64 * KIB + number * 1000 + i, dtype=torch.uint8)
            if i % 50 == 0:
                kept[number].append(block)

    with memlab.MemorySnapshot(source="cpu", max_entries=100_000) as recorder:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    snapshot = recorder.data().to_dict()
    trace = snapshot["device_traces"][0]
    allocated = [event["size"] for event in trace if event["action"] == "alloc"]
    expected = [64 * KIB + n * 1000 + i for n in range(8) for i in range(300)]
    assert sorted(allocated) == sorted(expected)
    tensors = {t.data_ptr(): t.nbytes for own in kept for t in own}
    assert len(tensors) == 48 and tensors.items() <= blocks_of(snapshot).items()
    freed = [event["size"] for event in trace if event["action"] == "free_completed"]
    assert len(freed) == len(expected) - len(tensors)
    live, _ = replay(trace)
    assert live == tensors


def check_limit():
    first = memlab.MemorySnapshot(source="cpu", max_entries=100).start()
    for i in range(500):
        torch.empty(1000 + i, dtype=torch.uint8)
    first.stop()
    newest = first.data().to_dict()["device_traces"][0]
    assert [e["size"] for e in newest] == [1466] + [
        1000 + i for i in range(467, 500) for _ in range(3)
    ]
    assert first.data().counts(0)["overwritten_events"] == 1400


check_life_after_stop(check_training())
check_threads()
check_limit()
