"""The forward line of a backward allocation against torch's own word: anomaly mode has
each node keep the stack of its making, and hooks of the nodes tell which one runs."""

import collections
import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest
import warm

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "programs" / "forward_lines.py"

Allocation = collections.namedtuple(
    "Allocation",
    "device index time thread bytes backward node how reason phase category module "
    "frame until stack own",
)


@pytest.fixture(scope="session")
def causes(tmp_path_factory):
    """A function from a snapshot's path to what the core says of its allocations."""
    program = tmp_path_factory.mktemp("causes") / "causes"
    core = ROOT / "csrc" / "core"
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=c11", "-O0", "-pthread", f"-I{core}",
         str(ROOT / "tests" / "helpers" / "causes.c"),
         *map(str, sorted(core.rglob("*.c"))), "-o", str(program)],
        check=True,
    )  # fmt: skip

    def read(path):
        done = subprocess.run([program, path], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return parse(done.stdout)

    return read


def parse(text):
    """The allocations, and [(time, thread, name)] of the marks."""
    allocations, marks = [], []
    for line in text.splitlines():
        kind, *fields = line.split("\t")
        if kind == "M":
            marks.append((int(fields[0]), int(fields[1]), fields[2]))
        else:
            fields[:6] = map(int, fields[:6])
            fields[12:14] = map(frame, fields[12:14])
            fields[14:] = [[frame(f) for f in s.split("\a")[:-1]] for s in fields[14:]]
            allocations.append(Allocation(*fields))
    return allocations, marks


def frame(text):
    if not text:
        return None
    file, line, name = text.split("|")
    return file, int(line), name


def running(allocations, marks, nodes):
    """[(backward allocation, the number of the node that made it)]"""
    moments = [(m[0], 0, m[1], m[2]) for m in marks]
    moments += [(a.time, 1, a.thread, a) for a in allocations if a.backward]
    inside = collections.defaultdict(list)  # of each thread: [node, has ended]
    found = []
    for _, kind, thread, what in sorted(moments, key=lambda m: m[:2]):
        stack = inside[thread]
        if kind == 1:
            # What follows the end of a node, the sum of its gradients with others', is
            # its own too, unless another one, which ran it, goes on.
            while len(stack) > 1 and stack[-1][1] and not is_node(what, nodes, stack):
                stack.pop()
            assert stack and is_node(what, nodes, stack), (what, stack)
            found.append((what, stack[-1][0]))
            continue
        word, number = what.split()
        if word == "begin":
            while stack and stack[-1][1]:
                stack.pop()
            stack.append([int(number), False])
        else:
            while stack[-1][0] != int(number):
                assert stack.pop()[1]
            stack[-1][1] = True
    return found


def is_node(allocation, nodes, stack):
    name = nodes[stack[-1][0]]["name"]
    return name in allocation.node or "PyNode" in allocation.node


def users(frames):
    """The program's frames, innermost first, up to a backward pass that runs them."""
    inside = []
    for at in frames:
        if at[2] == "_engine_run_backward":
            break
        if at[0] == str(PROGRAM):
            inside.append(at)
    return inside


def true_frames(nodes, number):
    """Where the node was made; one that a backward pass made, where the node was that ran."""
    node = nodes[number]
    found = users([tuple(at) for at in node["frames"]])
    if not found and node["parent"] is not None:
        return true_frames(nodes, node["parent"])
    return found


def agreement(allocation, true):
    """How what is said of the line compares with the program's frames of the node."""
    said, until = allocation.frame, allocation.until
    if said is None:
        return "none"
    if allocation.how in ("node", "likely"):
        if said == true[0]:
            return "exact"
        return "function" if said[::2] == true[0][::2] else "wrong"
    if allocation.how == "near":
        # Or in a function that was called from there.
        for at in true:
            if at[::2] == said[::2]:
                first, line, last = said[1], at[1], until[1]
                if first <= last:
                    return "between" if first <= line <= last else "function"
                return "between" if line >= first or line <= last else "function"
        return "wrong"
    return "call"


def compare(allocations, marks, nodes):
    """bytes by how a line is known and what it is, and the lines that are not right"""
    sums, wrong = collections.Counter(), collections.Counter()
    for allocation, number in running(allocations, marks, nodes):
        if allocation.how == "frames":
            sums["frames", ""] += allocation.bytes
            continue
        true = true_frames(nodes, number)
        kind = agreement(allocation, true)
        sums[allocation.how or allocation.reason, kind] += allocation.bytes
        if kind not in ("exact", "between"):
            said, until = allocation.frame, allocation.until
            wrong[
                allocation.how, kind, nodes[number]["name"], said and said[1:],
                until and until[1], true and true[0][1:],
            ] += allocation.bytes  # fmt: skip
    return sums, wrong


PROGRAMS = [
    "mlp", "attention", "in_place", "views", "custom", "checkpoints",
    "reentrant_checkpoints", "threads", "amp", "double", "seeded", "gpt2",
]  # fmt: skip
# What each way of knowing a line promises.
PROMISED = {("frames", ""), ("node", "exact"), ("likely", "exact"), ("near", "between")}
# The types of the nodes in `in_place` that worked in place and were followed by an
# operation without a node: what the first event after them tells is not their line.
FOLLOWED = {"AddBackward0", "MulBackward0", "NegBackward0", "ReluBackward0", "SigmoidBackward0"}


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def folder(request, tmp_path_factory):
    environment = None
    if request.param == "cuda":
        environment = request.getfixturevalue("device_environment")
    folder = tmp_path_factory.mktemp(request.param)
    programs = PROGRAMS
    if importlib.util.find_spec("transformers") is None:
        programs = PROGRAMS[:-1]
    done = warm.run(PROGRAM, request.param, folder, *programs, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_of_backward_allocations(folder, causes, name):
    path = folder / f"{name}.pickle"
    if name == "gpt2" and not path.exists():
        pytest.skip("transformers is not installed")
    allocations, marks = causes(path)
    nodes = json.loads((folder / f"{name}.json").read_text())
    sums, wrong = compare(allocations, marks, nodes)
    total = sum(sums.values())
    for (how, kind), size in sorted(sums.items()):
        print(f"{name:22} {how:8} {kind:9} {size:12} bytes {100 * size / total:6.2f} %")
    for key, size in wrong.most_common():
        print("    ", *key, size)
    assert sums["node", "exact"] > 0
    if name == "in_place":
        assert {how for how, *_ in wrong} == {"likely"}
        assert {node for _, _, node, *_ in wrong} <= FOLLOWED
    else:
        assert set(sums) <= PROMISED, wrong
