"""Memory that no known holder keeps: real programs on the real caching allocator, whose
figures are torch's own and whose lines are those that a reader of the program names."""

import json

import pytest
from report_keys import undocumented

from memlab import _core

pytestmark = pytest.mark.cuda

# Lines that memory is to be found at end in a name after #.
PROGRAM = """
import json, struct, sys, threading
import torch
from torch.utils.dlpack import to_dlpack
import memlab
from memlab import _core
from memlab._native import sources

torch.cuda.memory._set_allocator_settings(sys.argv[1])
snapshot = memlab.MemorySnapshot(source="cuda")
sources.ensure("cuda")
told, kept, looks = [], [], []

def claims():
    '''Of what the program holds itself; torch may keep the Python side of others alive.'''
    found = [globals()[n] for n in ("weight", "x", "loss") if n in globals()] + kept
    if "net" in globals():
        found += net.parameters()
        found += [p.grad for p in net.parameters() if p.grad is not None]
    storages = [t.untyped_storage() for t in found]
    return b"".join(struct.pack("QQ", s.data_ptr(), s.nbytes()) for s in storages)

def tell(name, collect=claims):
    answer = _core.unheld("cuda", 0, collect)
    stats = torch.cuda.memory_stats()
    answer["torch"] = {
        "allocated_bytes": stats["allocated_bytes.all.current"],
        "active_bytes": stats["active_bytes.all.current"],
        "reserved_bytes": stats["reserved_bytes.all.current"],
        "split_remainder_bytes": stats["inactive_split_bytes.all.current"],
    }
    told.append((name, answer))

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(256, 1024)
    def forward(self, x):
        x = self.up(x)
        return torch.relu(x)  # relu

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(), torch.nn.Dropout(0.5))
    def forward(self, x):
        x = self.blocks(x)  # dropout
        return x.exp()  # exp

weight = torch.zeros(1000, device="cuda")
before = to_dlpack(torch.zeros(5000, device="cuda"))
tell("nothing recorded")
snapshot.start()
net = Net().cuda()
_core.name_modules(torch.nn.Module)
x = torch.zeros(512, 256, device="cuda")
for _ in range(2):
    loss = net(x).sum()
    loss.backward()
tell("after backward")
loss = net(x).sum()
tell("before backward")
torch._C._cuda_clearCublasWorkspaces()
tell("without workspaces")
del loss
tell("no graph")

capsule = to_dlpack(torch.zeros(1 << 18, device="cuda"))  # capsule
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    pooled = to_dlpack(torch.zeros(1 << 19, device="cuda"))  # pooled
side = torch.cuda.Stream()
awaiting = torch.zeros(3 << 18, device="cuda")
awaiting.record_stream(side)
del awaiting
tell("held by C++")
del capsule, pooled

# Another thread allocates while claims are collected: in the first look alone, then always.
def disturbed(times):
    def collect():
        looks.append(times)
        if looks.count(times) <= times:
            thread = threading.Thread(target=lambda: kept.append(torch.zeros(9, device="cuda")))
            thread.start()
            thread.join()
        return claims()
    return collect

tell("disturbed once", disturbed(1))
tell("disturbed always", disturbed(100))
snapshot.stop()
tell("disturbed unrecorded", disturbed(2))

# What it allocates is free again at once, so that memory is as it was.
def passing():
    looks.append("passing")
    if looks.count("passing") == 1:
        torch.zeros(9, device="cuda")
    return claims()

tell("came and went unrecorded", passing)
numbers = [looks.count(n) for n in (1, 100, 2, "passing")]
print(json.dumps({"told": told, "looks": numbers}))
"""

LINES = {
    line.rpartition("  # ")[2]: number
    for number, line in enumerate(PROGRAM.splitlines(), 1)
    if "  # " in line
}

SETTINGS = [
    "expandable_segments:False",
    "expandable_segments:True",
    "roundup_power2_divisions:4",
    "max_split_size_mb:21",
]


@pytest.fixture(scope="module")
def answers(device_environment, tmp_path_factory):
    from warm import run

    program = tmp_path_factory.mktemp("unheld") / "program.py"
    program.write_text(PROGRAM)
    answers = {}
    for setting in SETTINGS:
        done = run(program, setting, env=device_environment, cwd=program.parent)
        assert done.returncode == 0, done.stdout + done.stderr
        answers[setting] = json.loads(done.stdout)
    return answers


@pytest.fixture(params=SETTINGS)
def answer(request, answers):
    return {**answers[request.param], "told": dict(answers[request.param]["told"])}


def rows(answer, keeper=""):
    return {row["line"]: row for row in answer["rows"] if row["keeper"] == keeper}


def test_sums_are_torchs_own_to_the_byte(answer):
    for name, now in answer["told"].items():
        torch = now["torch"]
        held = now["held_bytes"] + now["unheld_bytes"]
        assert held == now["allocated_bytes"] == torch["allocated_bytes"], name
        active = now["allocated_bytes"] + now["awaiting_free_bytes"]
        assert active == torch["active_bytes"], name
        assert active + now["cached_bytes"] == now["reserved_bytes"], name
        assert now["reserved_bytes"] == torch["reserved_bytes"], name
        assert now["split_remainder_bytes"] == torch["split_remainder_bytes"], name
        assert now["claimed_bytes"] + now["slack_bytes"] == now["held_bytes"], name
        assert sum(row["bytes"] for row in now["rows"]) == now["unheld_bytes"], name
        assert sum(row["blocks"] for row in now["rows"]) == now["unheld_blocks"], name
        assert now["outside_bytes"] == now["outside_claims"] == 0, name
        assert undocumented({**now, "torch": None}) <= {"torch"}


def test_without_a_recording_nothing_is_known_of_a_block(answer):
    now = answer["told"]["nothing recorded"]
    assert not now["recorded"] and not now["changed"]
    (row,) = now["rows"]
    assert (row["file"], row["line"], row["phase"]) == ("", 0, "unknown")
    assert row["reason"] == "nothing is recorded now"
    assert row["bytes"] >= 20000 and row["blocks"] == 1
    # 4000 bytes of a tensor in a block of a multiple of 512.
    assert now["claimed_bytes"] == 4000 and now["slack_bytes"] >= 96


def test_what_autograd_keeps_has_the_line_and_module_that_made_it(answer):
    now = answer["told"]["without workspaces"]
    assert now["recorded"] and not now["changed"]
    made = rows(now)
    # The result of relu, which its node saves; that of exp likewise.
    relu, exp = made[LINES["relu"]], made[LINES["exp"]]
    assert relu["bytes"] == 512 * 1024 * 4
    assert relu["module"] == "blocks.0" and relu["function"] == "forward"
    assert relu["phase"] == "forward" and relu["how"] == "frames"
    assert exp["module"] == "Net" and exp["bytes"] == 512 * 1024 * 4
    # Dropout's mask, a byte an element, made in a module without code of the program.
    assert made[LINES["dropout"]]["module"] == "blocks.1"
    assert made[LINES["dropout"]]["bytes"] == 512 * 1024
    # And what was there before the recording began.
    assert set(made) == {LINES["relu"], LINES["exp"], LINES["dropout"], 0}
    # When the graph goes, so do they.
    after = rows(answer["told"]["no graph"])
    assert not {LINES["relu"], LINES["exp"]} & set(after)
    assert not {LINES["relu"], LINES["exp"]} & set(rows(answer["told"]["after backward"]))


def test_what_cpp_holds_has_its_line(answer):
    now = answer["told"]["held by C++"]
    assert rows(now)[LINES["capsule"]]["bytes"] == 1 << 20
    pooled = rows(now, "memory pool")[LINES["pooled"]]
    assert pooled["bytes"] == 2 << 20 and pooled["pool"] == [0, 1]
    assert now["awaiting_free_bytes"] >= 3 << 20


def test_memory_that_changes_meanwhile_is_looked_at_again_or_said(answer):
    told = answer["told"]
    assert not told["disturbed once"]["changed"]
    assert told["disturbed always"]["changed"]
    assert not told["disturbed unrecorded"]["changed"]
    assert not told["came and went unrecorded"]["changed"]
    assert answer["looks"] == [2, 4, 3, 2]


def test_what_cannot_be_asked():
    with pytest.raises(Exception, match="no source of events named 'gpu'"):
        _core.unheld("gpu", 0, list)


def test_claims_that_are_none():
    if not _core.has_source("script"):
        _core.Script()
    with pytest.raises(ValueError, match="device must be from 0 to 63, not 64"):
        _core.unheld("script", 64, list)
    with pytest.raises(TypeError, match="expected bytes"):
        _core.unheld("script", 0, lambda: [3])
    with pytest.raises(ValueError, match="a claim is two numbers of 64 bits"):
        _core.unheld("script", 0, lambda: bytes(15))
    with pytest.raises(ZeroDivisionError):
        _core.unheld("script", 0, lambda: 1 / 0)
