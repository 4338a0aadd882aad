"""What memlab.MemReporter takes for a tensor, whose memory it is and what it is called; on
tensors of the host, in this process, which may have others: each test asks for its own."""

import gc
import io
import itertools
import sys
import warnings
import weakref
from contextlib import redirect_stdout

import pytest


@pytest.fixture
def reporter_of(torch):
    """MemReporter, with rows(reporter, *starts): those of names that start so."""
    from memlab import MemReporter

    return MemReporter


def rows(reporter, *starts, device="cpu"):
    """{name: (sizes, used bytes, shared with)} of rows whose names start so, in order."""
    return {
        row["name"]: (row["sizes"], row["used_bytes"], row["shared_with"])
        for found in reporter.stats(device)
        for row in found["rows"]
        if row["name"].startswith(starts)
    }


def named(reporter, sizes, device="cpu"):
    """The names of rows of SIZES, which no other test has."""
    return [
        row["name"]
        for found in reporter.stats(device)
        for row in found["rows"]
        if row["sizes"] == sizes
    ]


def test_a_model_gives_names_in_its_order(torch, reporter_of):
    net = torch.nn.Sequential(torch.nn.Linear(3, 200), torch.nn.BatchNorm1d(200))
    net[1].bias.grad = torch.ones(200)
    assert rows(reporter_of(net), "0.", "1.") == {
        "0.weight": ((200, 3), 2560, None),
        "0.bias": ((200,), 1024, None),
        "1.weight": ((200,), 1024, None),
        "1.bias": ((200,), 1024, None),
        "1.bias.grad": ((200,), 1024, None),
        "1.running_mean": ((200,), 1024, None),
        "1.running_var": ((200,), 1024, None),
        "1.num_batches_tracked": ((), 512, None),
    }


def test_the_model_must_be_a_module(torch, reporter_of):
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, not list"):
        reporter_of([1])
    with pytest.raises(TypeError, match="Optimizer, not Linear"):
        reporter_of().add_optimizer(torch.nn.Linear(1, 1))


def test_names_follow_objects(torch, reporter_of):
    """Objects at the place of dead ones are not called by their names, in any form in
    which they may be named: as a module's, by number, by an optimizer."""
    net = torch.nn.Linear(1201, 1)
    reporter = reporter_of(net)
    assert named(reporter, (1, 1201)) == ["weight"]
    address = id(net.weight)
    old = net.weight
    del net
    assert named(reporter, (1, 1201)) == ["weight"]
    del old
    kept = []
    for _ in range(100):
        kept.append(torch.nn.Parameter(torch.ones(1, 1201)))
        if id(kept[-1]) == address:
            break
    names = named(reporter, (1, 1201))
    assert len(names) == len(kept) and all(n.startswith("Parameter") for n in names)
    assert named(reporter, (1, 1201)) == names
    first = names[0]
    del kept[0]
    assert named(reporter, (1, 1201)) == names[1:]
    plain = torch.ones(1202)
    (number,) = named(reporter, (1202,))
    address = id(plain)
    del plain
    fresh = [torch.ones(1202) for _ in range(20)]
    assert not {number, first} & set(named(reporter, (1202,))), fresh[0]


def test_a_parameter_that_is_replaced_hands_its_name_on(torch, reporter_of):
    net = torch.nn.Linear(1203, 1)
    reporter = reporter_of(net)
    assert named(reporter, (1, 1203)) == ["weight"]
    old = net.weight
    net.weight = torch.nn.Parameter(torch.ones(1, 1203))
    new, other = named(reporter, (1, 1203))
    assert (new, other.rstrip("0123456789")) == ("weight", "Parameter"), old


def test_parameters_can_still_be_swapped(torch, reporter_of):
    """torch swaps parameters of modules in place unless somebody has weak references."""
    net, reporter = torch.nn.Linear(1204, 1), reporter_of()
    assert named(reporter, (1, 1204))
    loose = torch.nn.Linear(1205, 1)
    known = reporter_of(loose)
    assert named(known, (1, 1205)) == ["weight"]
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net.double(), loose.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert net.weight.dtype == loose.weight.dtype == torch.float64
    assert rows(known, "weight")["weight"] == ((1, 1205), 9728, None)


def test_nothing_is_kept_alive(torch, reporter_of):
    net, plain = torch.nn.Linear(2, 2), torch.ones(3)
    optimizer = torch.optim.SGD(net.parameters())
    reporter = reporter_of(net)
    reporter.add_optimizer(optimizer)
    reporter.collect_tensor()
    references = [weakref.ref(thing) for thing in (net, net.weight, plain, optimizer)]
    counts = sys.getrefcount(plain)
    reporter.get_stats()
    assert sys.getrefcount(plain) == counts
    del net, plain, optimizer
    gc.collect()
    assert [reference() for reference in references] == [None] * 4


def test_gradients_are_rows_once(torch, reporter_of):
    """Also one that Python has seen, one of a leaf that is no parameter, and one that an
    intermediate retains."""
    leaf = torch.ones(1301, requires_grad=True)
    middle = leaf * 2
    middle.retain_grad()
    middle.sum().backward()
    seen = leaf.grad
    reporter = reporter_of()
    names = named(reporter, (1301,))
    first, second = names[0], names[2]
    assert names == [first, f"{first}.grad", second, f"{second}.grad"], seen
    assert first.startswith("Tensor") and second.startswith("Tensor")


def test_shared_storages_count_once(torch, reporter_of):
    net = torch.nn.Module()
    base = torch.ones(1000)
    net.register_buffer("base", base)
    net.register_buffer("view", base[100:].view(30, 30))
    net.register_buffer("other", torch.from_dlpack(base[200:]))
    reporter = reporter_of(net)
    assert rows(reporter, "base", "view", "other") == {
        "base": ((1000,), 4096, None),
        "view": ((30, 30), 0, "base"),
        "other": ((800,), 0, "base"),
    }
    with redirect_stdout(io.StringIO()) as verbose:
        reporter.print_stats(verbose=True)
    line = f"{'view(->base)':<40}{'(30, 30)':>20}{'0.00B':>10}"
    assert line in verbose.getvalue().splitlines()
    with redirect_stdout(io.StringIO()) as brief:
        reporter.print_stats()
    assert line.replace("(->base)", " " * 8) in brief.getvalue().splitlines()


def test_an_empty_view_shows_memory_that_nobody_else_does(torch, reporter_of):
    net = torch.nn.Module()
    # Not [:0] of a tensor, which torch keeps as the base of the view.
    storage = torch.ones(5000, dtype=torch.uint8).untyped_storage()
    alone = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (0,), (1,))
    net.register_buffer("alone", alone)
    net.register_buffer("whole", torch.ones(10))
    net.register_buffer("beside", net.whole[:0])
    net.register_buffer("nothing", torch.empty(0))
    names = rows(reporter_of(net), "alone", "whole", "beside", "nothing")
    assert names == {"alone": ((0,), 5120, None), "whole": ((10,), 512, None)}


def test_sparse_tensors_show_what_they_consist_of(torch, reporter_of):
    net = torch.nn.Embedding(64, 100, sparse=True)
    net(torch.arange(32)).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        starts, columns = torch.arange(201), torch.arange(200)
        eye = torch.sparse_csr_tensor(starts, columns, torch.ones(200))
        net.register_buffer("csr", eye)
        net.register_buffer("bsc", torch.eye(8).to_sparse_bsc((2, 2)))
    seen = net.weight.grad
    assert rows(reporter_of(net), "weight", "csr", "bsc") == {
        "weight": ((64, 100), 25600, None),
        "weight.grad._indices": ((1, 32), 512, None),
        "weight.grad._values": ((32, 100), 12800, None),
        "csr.crow_indices": ((201,), 2048, None),
        "csr.col_indices": ((200,), 2048, None),
        "csr.values": ((200,), 1024, None),
        "bsc.ccol_indices": ((5,), 512, None),
        "bsc.row_indices": ((4,), 512, None),
        "bsc.values": ((4, 2, 2), 512, None),
    }, seen


def test_quantised_and_nested_tensors(torch, reporter_of):
    net = torch.nn.Module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        channel = torch.quantize_per_channel(
            torch.ones(4, 300), torch.ones(4), torch.zeros(4), 0, torch.qint8
        )
        parts = [torch.ones(3, 100), torch.ones(5, 100)]
        net.register_buffer("q", channel)
        net.register_buffer("n", torch.nested.nested_tensor(parts))
        jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    net.register_buffer("j", jagged)
    assert rows(reporter_of(net), "q", "n", "j") == {
        "q": ((4, 300), 1536, None),
        "q.q_per_channel_scales": ((4,), 512, None),
        "q.q_per_channel_zero_points": ((4,), 512, None),
        "n": ((800,), 3584, None),
        "n._nested_tensor_size": ((2, 2), 512, None),
        "n._nested_tensor_strides": ((2, 2), 512, None),
        "n._nested_tensor_storage_offsets": ((2,), 512, None),
        "j._values": ((8, 100), 3584, None),
        "j._offsets": ((3,), 512, None),
    }


def test_meta_and_fake_tensors_use_nothing_and_share_nothing(torch, reporter_of):
    from torch._subclasses import FakeTensorMode

    net = torch.nn.Module()
    net.register_buffer("a", torch.empty(10, device="meta"))
    net.register_buffer("b", torch.empty(20, device="meta"))
    with FakeTensorMode():
        net.register_buffer("fake", torch.empty(30))
    reporter = reporter_of(net)
    assert rows(reporter, "a", "b", "fake", device="meta") == {
        "a": ((10,), 0, None),
        "b": ((20,), 0, None),
        "fake": ((30,), 0, None),
    }
    with redirect_stdout(io.StringIO()) as text:
        reporter.report(device="meta")
    assert "Used Memory: 0.00B" in text.getvalue()
    assert "allocated" not in text.getvalue()


def test_a_dtensor_is_its_local_shard(torch, reporter_of):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group(
        "fake", rank=0, world_size=4, store=FakeStore()
    )
    try:
        net = torch.nn.Linear(100, 80, bias=False)
        fully_shard(net, mesh=init_device_mesh("cpu", (4,)))
        net.weight.grad = torch.ones_like(net.weight)
        # A quarter of 80 rows.
        assert rows(reporter_of(net), "weight") == {
            "weight": ((20, 100), 8192, None),
            "weight.grad": ((20, 100), 8192, None),
        }
    finally:
        torch.distributed.destroy_process_group()


def test_optimizer_states_are_named_by_parameter(torch, reporter_of):
    net, loose = (
        torch.nn.Linear(20, 10, bias=False),
        torch.ones(1401, requires_grad=True),
    )
    optimizer = torch.optim.Adam([*net.parameters(), loose])
    reporter = reporter_of(net)
    reporter.add_optimizer(optimizer)
    (net(torch.ones(20)).sum() + loose.sum()).backward()
    optimizer.step()
    shown = rows(reporter, "Adam.")
    (name,) = (n for n in named(reporter, (1401,)) if n[-1].isdigit())
    assert shown == {
        "Adam.weight.step": ((), 512, None),
        "Adam.weight.exp_avg": ((10, 20), 1024, None),
        "Adam.weight.exp_avg_sq": ((10, 20), 1024, None),
        f"Adam.{name}.step": ((), 512, None),
        f"Adam.{name}.exp_avg": ((1401,), 5632, None),
        f"Adam.{name}.exp_avg_sq": ((1401,), 5632, None),
    }


def test_no_code_of_the_program_runs(torch, reporter_of):
    """Objects that fail when they are asked what they are do not matter."""

    class Odd:
        @property
        def __class__(self):
            raise RuntimeError("asked")

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise RuntimeError("called")

    odd, dead = Odd(), weakref.proxy(Odd())
    loud = torch.ones(1501).as_subclass(Loud)
    lazy = torch.nn.LazyLinear(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names = named(reporter_of(lazy), (1501,))
    assert [name for name in names if name.startswith("Loud")], (odd, dead, loud)


def test_the_device_filter(torch, reporter_of):
    reporter, kept = reporter_of(), torch.ones(3)
    for device in "cpu", torch.device("cpu"):
        assert [d["device"] for d in reporter.stats(device)] == ["cpu"]
    meta = torch.empty(3, device="meta")
    assert [d["device"] for d in reporter.stats("meta")] == ["meta"], meta
    assert reporter.stats("mps") == []
    for device in "nonsense", "cpu:x", -1, 1.5, []:
        with pytest.raises(ValueError, match="device"):
            reporter.report(device=device)
    assert kept is not None


def test_garbage_is_collected_where_that_is_asked_for(torch, reporter_of):
    def drop():
        cycle = [torch.ones(1601)]
        cycle.append(cycle)

    gc.disable()
    try:
        drop()
        assert named(reporter_of(), (1601,))
        assert not named(reporter_of(pre_collect=True), (1601,))
    finally:
        gc.enable()


def test_who_holds_what_nobody_names(torch, reporter_of):
    """Each by its shortest way; all in one search."""
    net = torch.nn.Linear(1701, 1)
    net.kept = [torch.ones(1702), torch.ones(1703)]
    net.weight.grad = torch.ones(1, 1701)
    view = net.kept[0][:1700]
    pair = torch.eye(1704).to_sparse()
    reporter = reporter_of(net)

    (device,) = reporter.stats("cpu", holders=True)
    ours = [(1, 1701), (1700,), (1702,), (1703,), (2, 1704), (1704,)]
    held = {
        row["sizes"]: row["holders"] for row in device["rows"] if row["sizes"] in ours
    }
    where = "of test_who_holds_what_nobody_names()"
    weight, part, kept, alone, first, second = (held.pop(sizes) for sizes in ours)
    # What has a name, or shares what another row shows, is not looked for.
    assert weight is None and part is None
    assert [h.kind for h in kept] == ["local", "local"]
    assert str(kept[0]).startswith(f"local `view` {where}")
    assert str(kept[1]).startswith(f"local `net.kept[0]` {where}")
    (alone,) = alone
    assert str(alone).startswith(f"local `net.kept[1]` {where}")
    # Of a sparse tensor once, at its first part.
    assert second is None and str(first[0]).startswith(f"local `pair` {where}")
    assert all("holders" not in row for row in reporter.stats("cpu")[0]["rows"])
    assert view is not None and pair is not None


def test_holders_are_printed_below_their_row(torch, reporter_of, capsys):
    kept = torch.ones(1801), torch.ones(1802)
    other = kept[1]
    saved = torch.ones(1, requires_grad=True).expand(1803) + 1
    out = saved.sin().sum()
    del saved
    reporter = reporter_of()
    reporter.report(device="cpu")
    plain = capsys.readouterr().out.splitlines()
    reporter.report(device="cpu", holders=True)
    lines = capsys.readouterr().out.splitlines()

    def below(sizes):
        (at,) = [i for i, line in enumerate(lines) if f"({sizes},)" in line]
        rest = itertools.takewhile(lambda line: line.startswith("      "), lines[at + 2 :])
        return " ".join([lines[at + 1], *map(str.strip, rest)])

    where = "of test_holders_are_printed_below_their_row() at test_mem_reporter.py:"
    assert below(1801).startswith(f"    held by local `kept[0]` {where}")
    assert below(1801)[-1].isdigit()
    assert below(1802).startswith(f"    held by local `other` {where}")
    assert below(1802).endswith(", and 1 more")
    node = "    autograd node `SinBackward0` saved `self`, reached from local `out"
    assert below(1803).startswith(node)
    assert [line for line in lines if not line.startswith("    ")] == plain
    assert max(map(len, lines)) == 79, "as wide as the table"
    assert other is not None and out is not None


def test_without_a_stdout_nothing_is_printed_and_nothing_raised(
    torch, reporter_of, monkeypatch
):
    """As of a daemon, in which Python's sys.stdout is None."""
    monkeypatch.setattr("sys.stdout", None)
    reporter = reporter_of()
    reporter.report(device="cpu")
    reporter.print_stats(target_device="cpu")


def test_a_cycle_that_holds_a_tensor_is_said(torch, reporter_of, capsys):
    def drop():
        cycle = [torch.ones(1901)]
        cycle.append(cycle)

    gc.disable()
    try:
        drop()
        reporter_of().report(device="cpu", holders=True)
    finally:
        gc.enable()
    lines = capsys.readouterr().out.splitlines()
    (at,) = [i for i, line in enumerate(lines) if "(1901,)" in line]
    assert lines[at + 1] == "    only a reference cycle holds it: gc.collect() frees it"
