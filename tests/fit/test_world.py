"""memlab fit --world-size: ranks that run alone take what ranks take that talk to each other,
and of a large world what is worked out by hand.
"""

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from amounts import amount
from answer_shapes import check
from cuda_here import why_not_measured
from on_phantom import needs_torch

from memlab import _answers
from memlab._cli import main
from memlab._fit import text, world

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "programs" / "world.py"
# Of tests/programs/world.py, in bytes: four layers of 1024 squared.
LAYER = 1024 * 1024 * 4
PARAMETERS = 4 * LAYER
# A batch: what goes in, and comes out of each layer.
ROWS = 64 * 1024 * 4
BLOCK = 512  # of a number
ROWS_FIGURES = ("allocated_peak_bytes", "reserved_peak_bytes", "total_bytes")
FIGURES = ("rank", "allocated_peak_bytes", "reserved_peak_bytes", "outside_bytes")
# With their ranks, by what they show first: in CI but the first of them.
KINDS = [
    ("fsdp2", 2), ("pp_1f1b", 2), ("ddp", 2), ("tp", 2), ("zero", 2), ("cp", 2), ("ep", 2),
    ("hsdp", 4), ("fsdp1", 2), ("ddp_view", 2), ("pp_gpipe", 2),
    ("offload", 2), ("tp_fsdp2", 4), ("fsdp2_keep", 2), ("fsdp2_mixed", 2),
]  # fmt: skip
KINDS += [(kind, 8) for kind, _ in KINDS]
# Of sizes and of back ends, in CI the first.
CASES = amount("WORLD_CASES", 1)
H200S = json.loads((ROOT / "tests" / "data" / "h200_worlds.json").read_text())["worlds"]
ON_H200S = [world for world in H200S if not world.startswith("ep_")][: amount("WORLD_H200S", 0)]
IN_THE_NIGHT = pytest.mark.skip(reason="some twenty seconds each: in make test-nightly")


def fit_json(capsys, *words):
    """The answer of `memlab fit --json WORDS`."""
    status = main.main(["fit", "--json", *map(str, words)])
    said = capsys.readouterr()
    assert status == 0, said.err
    answer = json.loads(said.out)
    check(answer, _answers.FitAnswer)
    return answer


def figures(answer):
    return [[item[name] for name in FIGURES] for item in answer["devices"]]


@needs_torch
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("kind, ranks", KINDS[: amount("WORLD_KINDS", 1)])
def test_alone_a_rank_takes_what_it_takes_among_others(kind, ranks, capsys):
    all_of_them = ",".join(map(str, range(ranks)))
    alone = fit_json(capsys, "--world-size", ranks, "--ranks", all_of_them, PROGRAM, kind)
    talking = fit_json(capsys, "torchrun", "--nproc-per-node", ranks, PROGRAM, kind)
    assert figures(alone) == figures(talking)
    assert talking["world"] is None


@needs_torch
@pytest.mark.nightly
@pytest.mark.h200
@pytest.mark.parametrize("kind", ON_H200S or [pytest.param("", marks=IN_THE_NIGHT)])
def test_a_rank_takes_what_it_took_on_four_h200s(kind, capsys):
    name, size = kind.split(" of ")
    all_of_them = ",".join(map(str, range(int(size))))
    answer = fit_json(capsys, "--world-size", size, "--ranks", all_of_them, PROGRAM, name)
    for item, (allocated, reserved) in zip(answer["devices"], H200S[kind], strict=True):
        assert item["allocated_peak_bytes"] == allocated
        # Of two ranks of all a small segment more, by when memory was free again.
        assert reserved - item["reserved_peak_bytes"] in (0, 2 << 20)


@needs_torch
@pytest.mark.nightly
@pytest.mark.parametrize("size", [1024, 64][:CASES])
def test_of_a_large_world_a_rank_has_its_share(size, capsys):
    answer = fit_json(
        capsys,
        *("--world-size", size, "--ranks", size - 1),
        *("torchrun", "--nproc-per-node", 8, "--nnodes", size // 8, PROGRAM, "fsdp2"),
    )
    [device] = answer["devices"]
    assert (device["rank"], device["device"]) == (size - 1, 7)
    assert answer["world"] == {
        "size": size,
        "nodes": size // 8,
        "ranks": [{"rank": size - 1, "reason": "asked for"}],
        "decides": size - 1,
        "rows": None,
    }
    shares = device["by_category"]
    assert shares["parameter"] == PARAMETERS // size
    # AdamW's two.
    assert shares["optimizer_state"] == 2 * PARAMETERS // size
    # It peaks in the backward pass of the last layer but one.  Whole there, whatever the size
    # of the world: its parameters and, gathered ahead, those of the layer before; the last
    # layer's gradient, which is being reduced to its share.
    assert shares["communication"] == 3 * LAYER
    assert shares["gradient"] == LAYER // size
    # Its own gradient, those of what comes in and of what came out, and the loss's; cuBLAS's
    # workspaces, of the forward's thread and the backward's.  torch 2.15 takes one for a call.
    scratch = shares["temporary"] + shares["workspace"]
    workspaces = 1 if version("torch") >= "2.15" else 2
    assert scratch == LAYER + 2 * ROWS + BLOCK + workspaces * (32 << 20)
    # What came out of the first two layers, and the loss; the batch.
    assert (shares["activation"], shares["input"]) == (2 * ROWS + BLOCK, ROWS)
    told = ("parameter", "optimizer_state", "communication", "gradient", "activation", "input")
    rest = scratch + sum(shares[name] for name in told)
    assert device["allocated_peak_bytes"] == rest
    assert "is extrapolated to" in answer["notes"][-1]


@needs_torch
@pytest.mark.slow
def test_a_rank_that_does_not_fit_is_the_answer(capsys):
    """Memory ends at the first rank; without a limit the other one runs too."""
    words = ["--world-size", "64", "--ranks", "0,63", "--gpu", "l4", "--memory", "1140MiB"]
    assert main.main(["fit", "--json", *words, str(PROGRAM), "fsdp2"]) == 3
    answer = json.loads(capsys.readouterr().out)
    check(answer, _answers.FitAnswer)
    assert answer["out_of_memory"]["rank"] == 0
    assert [row["rank"] for row in answer["world"]["ranks"]] == [0, 63]
    assert [item["rank"] for item in answer["devices"]] == [0, 63]
    assert "rank 0 decides" in text.text(answer).lower()


@needs_torch
@pytest.mark.slow
def test_a_stage_is_fed_with_the_shapes_of_the_one_before(capsys):
    """The second of two: before it the first runs, which was not asked for."""
    answer = fit_json(
        capsys, "--world-size", 2, "--ranks", 1, "--steps", 3, PROGRAM, "pp_inferred"
    )
    [device] = answer["devices"]
    # Layers 2 and 3, whose inputs are 1024 and 64 wider each, and their biases.
    expected = sum(4 * (wide + 1) * (wide + 64) for wide in (1024 + 128, 1024 + 192))
    # Blocks of the allocator are multiples of 512 bytes.
    assert expected <= device["by_category"]["parameter"] <= expected + 4 * 512


@needs_torch
@pytest.mark.slow
def test_stages_that_feed_each_other_take_turns(capsys):
    """The second of two ranks feeds the first, too, whose layers take no other shape."""
    answer = fit_json(capsys, "--world-size", 2, PROGRAM, "pp_loops")
    assert answer["world"]["ranks"] == [
        {"rank": 0, "reason": "the first"}, {"rank": 1, "reason": "stage 1 of 2"},
    ]  # fmt: skip
    assert (answer["ended"], answer["steps"]) == ("end", 3)


OBJECTS = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group(BACKEND)
rank, ranks = dist.get_rank(), dist.get_world_size()
first = rank == 0

def same(found, expected):
    assert found == expected, (found, expected)

gathered = [None] * ranks
dist.all_gather_object(gathered, {"rank": rank})
same(gathered, [{"rank": rank}] * ranks)
said = [{"seed": 7, "rank": rank}, "run"] if first else [None, None]
dist.broadcast_object_list(said, src=0)
same(said, [{"seed": 7, "rank": 0}, "run"])
part = [None]
dist.scatter_object_list(part, list("abcdefgh") if first else None, src=0)
same(part, ["abcdefgh"[rank]])
to_first = [None] * ranks if first else None
dist.gather_object("mine", to_first, dst=0)
same(to_first, ["mine"] * ranks if first else None)
dist.barrier()
if BACKEND == "gloo":
    dist.monitored_barrier()
if not first:
    before = [None]
    dist.recv_object_list(before, src=rank - 1)
    same(before, [rank - 1])
if rank < ranks - 1:
    dist.send_object_list([rank], dst=rank + 1)
# A batch, whose messages come when it ends.
number = torch.full((1,), 7 + rank, device=DEVICE)
batch = [dist.P2POp(dist.isend, number, rank + 1)] if rank < ranks - 1 else []
if not first:
    heard = torch.zeros_like(number)
    batch.append(dist.P2POp(dist.irecv, heard, rank - 1))
for work in dist.batch_isend_irecv(batch):
    work.wait()
same(first or heard.item(), first or 6 + rank)
# What each says in the store, and who waits there for all.
store = dist.distributed_c10d._get_default_store()
store.set(f"host/{rank}", f"host of {rank}")
same(store.get(f"host/{ranks - 1}"), f"host of {rank}".encode())
store.add("came", 1)
assert store.add("came", 0) == ranks
pair = rank // 2 * 2
pairs = [dist.new_group([i, i + 1]) for i in range(0, ranks, 2)]
same(dist.get_process_group_ranks(pairs[rank // 2]), [pair, pair + 1])
one = torch.nn.Parameter(torch.ones(1, device="cuda"))
one.grad = torch.ones(1, device="cuda")
torch.optim.SGD([one]).step()
"""


@needs_torch
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["cpu:gloo,cuda:nccl", "gloo"][:CASES])
def test_what_one_rank_says_the_others_hear(backend, tmp_path, capsys):
    """Rank 2 runs after 0, whose words it has, and 1, from which it receives."""
    script = tmp_path / "train.py"
    device = "cpu" if backend == "gloo" else "cuda"
    program = OBJECTS.replace("BACKEND", repr(backend)).replace("DEVICE", repr(device))
    script.write_text(program)
    answer = fit_json(capsys, "--world-size", 8, "--ranks", 2, script)
    assert [item["rank"] for item in answer["devices"]] == [2]


@needs_torch
@pytest.mark.slow
def test_a_rank_that_others_need_shows_its_own_error(tmp_path, capsys):
    """Rank 1 was asked for; 0 runs before it, and fails before it sends."""
    script = tmp_path / "train.py"
    fails = "if first:\n    raise ValueError('a fault\\nof its own')\nsaid = ["
    program = OBJECTS.replace("said = [", fails, 1).replace("BACKEND", "'gloo'")
    script.write_text(program.replace("DEVICE", "'cpu'"))
    assert main.main(["fit", "--world-size", "8", "--ranks", "1", str(script)]) == 1
    told = [line for line in capsys.readouterr().err.splitlines() if "status" in line]
    assert len(told) == 1
    assert told[0].startswith(
        "memlab: rank 0 of train.py ended with status 1 by ValueError: a fault of its own, on"
    )


SPLITS = """
import os, torch, torch.distributed as dist
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
# Bound to a device, groups are split off the first one.
dist.init_process_group("nccl", device_id=device)
mesh = dist.device_mesh.init_device_mesh("cuda", (2, 2), mesh_dim_names=("copies", "shards"))
part = torch.arange(64, device=device)
for group in (mesh.get_group("shards"), dist.new_group([0, 1, 2])):
    if dist.get_rank(group) < 0:
        continue
    whole = torch.empty(64 * group.size(), dtype=torch.int64, device=device)
    behind = torch.zeros(256, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(whole, part, group=group)
    assert whole.sum().item() == group.size() * 63 * 32
    assert behind.sum().item() == 0
one = torch.nn.Parameter(torch.ones(1, device=device))
one.grad = torch.ones(1, device=device)
torch.optim.SGD([one]).step()
"""


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [("--world-size", 4, "--ranks", 0), ("torchrun", "--nproc-per-node", 4)]
)
def test_a_group_that_is_split_off_has_its_own_size(how, tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(SPLITS)
    answer = fit_json(capsys, *how, script)
    assert answer["ended"] == "end"


EXCHANGES = """
import sys, torch, torch.distributed as dist
dist.init_process_group("nccl")
part = torch.ones(12, device="cuda")
sizes = [6, 6] if sys.argv[1] == "equal" else [4, 8]
dist.all_to_all_single(torch.empty_like(part), part, sizes, sizes)
one = torch.nn.Parameter(torch.ones(1, device="cuda"))
one.grad = torch.ones(1, device="cuda")
torch.optim.SGD([one]).step()
"""


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("how, told", [("equal", 0), ("unequal", 1)])
def test_parts_of_unequal_sizes_are_told(how, told, tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(EXCHANGES)
    answer = fit_json(capsys, "--world-size", 2, "--ranks", 0, script, how)
    assert sum("parts of unequal sizes" in note for note in answer["notes"]) == told


@needs_torch
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("gather", [["gather"], []][: amount("WORLD_EXPERTS", 1)])
def test_the_rows_of_experts_are_a_range(gather, capsys):
    """Held against ranks that talk, among which it is planted how many rows come: as many to
    each, or all to rank 0 and so none to rank 1.
    """
    program = PROGRAM.parent / "experts.py"
    answer = fit_json(capsys, "--world-size", 2, "--ranks", 0, program, *gather)
    found = {row["assumed"]: [row[name] for name in ROWS_FIGURES] for row in answer["world"]["rows"]}
    talking = {}
    for planted in ("even", "all"):
        words = ("torchrun", "--nproc-per-node", 2, program, planted, *gather)
        devices = fit_json(capsys, *words)["devices"]
        talking[planted] = [[item[name] for name in ROWS_FIGURES] for item in devices]
        for item in talking[planted] if gather else []:
            # What NCCL's rings take; here Gloo gathered.
            item[-1] += 288 << 20
    assert found == {
        "none": talking["all"][1], "even": talking["even"][0], "all": talking["all"][0],
    }  # fmt: skip
    if not why_not_measured():
        on_h200s = [H200S["ep_all of 4"][1], H200S["ep_even of 4"][0], H200S["ep_all of 4"][0]]
        assert [found[assumed][:2] for assumed in ("none", "even", "all")] == on_h200s
    assert found["none"] < found["even"] < found["all"]
    assert not [note for note in answer["notes"] if "unequal" in note]


@needs_torch
@pytest.mark.slow
def test_a_tally_of_what_is_not_known_has_the_sum_that_was_counted(capsys, monkeypatch):
    """More rows than the phantom computes: else parts would not add up to them."""
    monkeypatch.setenv("ROWS", "100000")
    words = ("--world-size", 4, "--ranks", 3, "--steps", 1, PROGRAM.parent / "experts.py")
    first, _, last = fit_json(capsys, *words)["world"]["rows"]
    # Two experts of each row.  Each of two layers keeps, of four ranks, what came.
    rows = 100_000 * 2 * 1024 * 4
    assert last["allocated_peak_bytes"] - first["allocated_peak_bytes"] >= 2 * 4 * rows


def test_rows_that_do_not_fit_are_told():
    rows = [
        dict(assumed=assumed, allocated_peak_bytes=1, reserved_peak_bytes=2, total_bytes=3)
        | {"rank": 5, "headroom_bytes": left}
        for assumed, left in (("none", 8 << 20), ("even", 4 << 20), ("all", -(2 << 20)))
    ]
    lines = list(text._rows({"decides": 0, "rows": rows}))
    assert lines[4].split()[0] == "all" and lines[4].endswith("-2.00 MiB")
    assert lines[-2].startswith("Of rank 5, if each rank has as many rows as this one")
    assert lines[-1] == "If all come to one rank, it does not fit."
    rows[-1]["headroom_bytes"] = 0
    assert list(text._rows({"decides": 0, "rows": rows}))[5:] == lines[5:6]


OFFLOADS = """
import contextlib, sys, torch
layers = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(16)))
optimizer = torch.optim.SGD(layers.cuda().parameters())
batch = torch.randn(8192, 1024, device="cuda")
offload = torch.autograd.graph.save_on_cpu(pin_memory=True)
with offload if sys.argv[1] == "offload" else contextlib.nullcontext():
    loss = layers(batch).square().mean()
loss.backward()
optimizer.step()
"""


@needs_torch
@pytest.mark.slow
def test_what_waits_on_the_host_takes_nothing_of_the_gpu(tmp_path, capsys):
    """What comes out of each of 16 layers is 32 MiB."""
    script = tmp_path / "train.py"
    script.write_text(OFFLOADS)
    kept = {}
    for how in ("keep", "offload"):
        [device] = fit_json(capsys, script, how)["devices"]
        kept[how] = device["by_category"]["activation"]
    assert kept["keep"] - kept["offload"] == 16 * (32 << 20)


@needs_torch
@pytest.mark.slow
def test_ddps_check_of_shapes_is_no_value_that_the_program_read(capsys):
    """It reads a number of each rank."""
    answer = fit_json(capsys, "--world-size", 64, "--ranks", 0, "--steps", 1, PROGRAM, "ddp")
    assert not [note for note in answer["notes"] if "made up" in note]


@needs_torch
def test_a_program_that_makes_no_process_group_is_told(capsys):
    program = PROGRAM.parent / "fit_steps.py"
    assert main.main(["fit", "--world-size", "4", str(program), "end"]) == 1
    said = capsys.readouterr().err
    assert "fit_steps.py never made a process group" in said
    assert "rank 3" not in said


@pytest.mark.parametrize(
    "words, said",
    [
        (["--nodes", "2"], "--nodes needs --world-size"),
        (["--ranks", "0"], "--ranks needs --world-size"),
        (["--world-size", "4", "--devices", "2"], "exclude each other"),
        (["--world-size", "64", "--nodes", "7"], "64 ranks do not divide into 7 nodes"),
        (["--world-size", "12"], "12 ranks are not nodes of 8: give the number of nodes"),
        (["--world-size", "64", "--nodes", "1"], "are 64 of a node; at most 16: give more"),
        (["--world-size", "64", "--ranks", "64"], "rank 64 is not in a world of 64"),
        (["--world-size", "64", "--ranks", "0-3"], "'0-3' are not ranks; write for example"),
    ],
)
def test_worlds_that_are_none_are_refused(words, said, capsys):
    with pytest.raises(SystemExit) as exit:
        main.main(["fit", *words, str(PROGRAM), "ddp"])
    assert exit.value.code == 2
    assert said in capsys.readouterr().err


def test_a_node_has_the_ranks_that_torchrun_starts():
    words = ["torchrun", "--nproc-per-node=4", "a.py"]
    around = world.of(16, None, None, words)
    assert (around.nodes, around.local) == (4, 4)
    found = around.variables(7)
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    assert [found[name] for name in names] == ["7", "3", "1", "16", "4"]
    assert world.of(4, None, None, ["a.py"]).nodes == 1
    assert world.of(None, None, None, ["a.py"]) is None


def test_one_rank_of_each_kind_is_run():
    around = world.of(16, None, None, ["a.py"])
    assert around.first() == {0: "the first"}
    told = {"stages": [[0, 8]], "meshes": [[[2, 4, 2], ["pp", "dp", "tp"]]]}
    assert around.others(told) == {
        8: "stage 1 of 2",
        7: "in the middle",
        15: "the last",
        1: "the last along tp",
        6: "the last along dp",
    }
    asked = world.of(16, None, [9, 3], ["a.py"])
    assert asked.first() == {3: "asked for", 9: "asked for"}
    assert asked.others(told) == {}


def test_the_table_says_which_rank_decides():
    def device(rank, left):
        return {
            "rank": rank, "device": rank, "allocated_peak_bytes": 1 << 30,
            "reserved_peak_bytes": 2 << 30, "total_bytes": 3 << 30, "headroom_bytes": left,
        }  # fmt: skip

    ranks = [{"rank": 0, "reason": "the first"}, {"rank": 7, "reason": "the last"}]
    answer = {
        "world": {"size": 8, "nodes": 1, "ranks": ranks, "decides": 7},
        "devices": [device(0, 1 << 30), device(7, -(1 << 20))],
    }
    title, _, first, last, decides = text._ranks(answer)
    assert title == "Ranks that were run, each alone, of 8 on 1 node"
    assert first.split()[-4:] == ["1.00", "GiB", "the", "first"]
    assert last.split()[-4:] == ["-1.00", "MiB", "the", "last"]
    assert decides == "Rank 7 decides: it has the least left."
