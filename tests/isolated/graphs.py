"""CUDA graphs, private pools and MemPools while both recorders run.

After every step memlab's totals are torch's to the byte and its events are those of
torch's own history; allocations of a capture and of a pool keep the pool's id.
"""

import gc

import both
import torch
from torch import nn

import memlab
from memlab._native import sources

MIB = 1 << 20


def checked(where):
    gc.collect()  # a collection between the two snapshots would make them differ
    both.reconcile(where)
    both.check()


def pool_ids(recorder):
    """The pool of each allocation so far, by address: the newest."""
    recording = recorder._freeze(sources.dialect_keys() | 0x04)
    trace = recording.to_dict()["device_traces"][0]
    return {e["addr"]: e["pool_id"] for e in trace if e["action"] == "alloc"}


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train_by_graph(recorder):
    """Whole training steps, captured and replayed; the second graph shares the pool."""
    model, optimizer = network()
    static = torch.randn(128, 512, device="cuda")

    def step():
        loss = model(static).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            step()
    torch.cuda.current_stream().wait_stream(side)
    checked("warm-up on a side stream")
    graph, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    checked("after a capture")
    pools = pool_ids(recorder)
    assert pools[loss.data_ptr()] == graph.pool() != (0, 0), pools[loss.data_ptr()]
    assert pools[static.data_ptr()] == (0, 0)
    for replay in range(3):
        graph.replay()
        checked(f"replay {replay}")
    with torch.cuda.graph(second, pool=graph.pool()):
        again = model(static).sum()
    checked("a second capture into the same pool")
    assert pool_ids(recorder)[again.data_ptr()] == graph.pool()
    second.replay()
    outside = torch.empty(3 * MIB, device="cuda")
    assert pool_ids(recorder)[outside.data_ptr()] == (0, 0)
    del loss, again
    optimizer.zero_grad(set_to_none=True)
    checked("what the graphs gave out is freed")
    graph.reset()
    checked("one graph of two is gone")
    second.reset()
    torch.cuda.empty_cache()
    checked("the pool is gone")


def graphed_callable():
    model, _ = network()
    sample = torch.randn(16, 512, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    for _ in range(3):
        graphed(torch.randn(16, 512, device="cuda")).sum().backward()
        checked("a graphed callable's step")
    del graphed, model
    torch.cuda.empty_cache()
    checked("a graphed callable is gone")


def failed_capture():
    """The program's own error leaves a capture; recording goes on."""
    graph = torch.cuda.CUDAGraph()
    held = []
    try:
        with torch.cuda.graph(graph):
            held.append(torch.empty(5 * MIB, device="cuda"))
            raise ValueError("the program's own")
    except ValueError as error:
        assert str(error) == "the program's own"
    checked("a capture that failed")
    held.clear()
    del graph
    torch.cuda.empty_cache()
    checked("after a capture that failed")


def out_of_memory_in_a_pool():
    pool = torch.cuda.MemPool()
    held = []
    with torch.cuda.use_mem_pool(pool):
        held.append(torch.empty(8 * MIB, device="cuda"))
        try:
            torch.empty(1 << 44, device="cuda")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("64 TiB were found")
        held.append(torch.empty(100, device="cuda"))
    checked("out of memory in a pool")


def pools(recorder):
    """MemPools within each other, on side streams, and their ends."""
    outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
    side = torch.cuda.Stream()
    with torch.cuda.use_mem_pool(outer):
        a = torch.empty(30 * MIB, device="cuda")
        with torch.cuda.use_mem_pool(inner), torch.cuda.stream(side):
            b = torch.empty(700, device="cuda")
            a.record_stream(side)
        c = torch.empty(5000, device="cuda")
    d = torch.empty(5000, device="cuda")
    checked("pools within each other")
    ids = pool_ids(recorder)
    found = [ids[t.data_ptr()] for t in (a, b, c, d)]
    assert found == [outer.id, inner.id, outer.id, (0, 0)], found
    del a
    checked("a block of a pool waits for a stream")
    torch.cuda.synchronize()
    with torch.cuda.use_mem_pool(outer):
        a = torch.empty(9 * MIB, device="cuda")
    checked("a pool's memory is used again")
    del a, b, c
    checked("the pools are empty")
    del outer, inner
    torch.cuda.empty_cache()
    checked("the pools are gone")


def main():
    torch.empty(1, device="cuda")
    both.start()
    recorder = memlab.MemorySnapshot(context=None).start()
    torch.cuda.reset_peak_memory_stats()
    train_by_graph(recorder)
    graphed_callable()
    failed_capture()
    out_of_memory_in_a_pool()
    pools(recorder)
    recorder.stop()


main()
