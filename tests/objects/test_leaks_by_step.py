"""memlab.leaks(): leaks planted at known lines of training programs, and what is none."""

import json

import pytest
from answer_shapes import check
from report_keys import undocumented

import memlab
from memlab import _answers, _core
from memlab._objects import leaks as _leaks

# Lines at which something leaks end in the name of the function after #.
PROGRAM = """
import collections, json, sys, time
import torch
import memlab

device = sys.argv[1]
source = device if device == "cpu" else "cuda"

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 256)
        self.down = torch.nn.Linear(256, 64)
    def forward(self, x):
        x = self.up(x)
        x = torch.exp(x)  # keeps_the_graph keeps_grad_fn
        return self.down(x)

def watch(train, steps):
    '''What leaks() answered after each of the steps.'''
    memlab.leaks(None)
    answers = [memlab.leaks(-1, source=source)]
    for step in range(steps):
        train(step)
        answers.append(memlab.leaks(step))
    return answers

net = Net().to(device)
optimizer = torch.optim.Adam(net.parameters())

def batch(size=32):
    return torch.ones(size, 64, device=device)

history, cache, nodes, hooks, rows, losses = [], {}, [], [], [], []

def keeps_the_graph(step):
    history.append(net(batch()).sum())

def fills_a_cache(step):
    cache[step] = batch() * 2  # fills_a_cache

def keeps_grad_fn(step):
    nodes.append(net(batch()).sum().grad_fn)

def keeps_a_closure(step):
    grown = batch() + 1  # keeps_a_closure
    hooks.append(lambda: grown)

def fills_a_replay_buffer(step):
    rows.extend(torch.zeros(1000, device=device) for _ in range(3))  # fills_a_replay_buffer

def keeps_gradients(step):
    for p in net.parameters():
        p.grad = None
    (torch.exp(net(batch())) * 1).sum().backward()
    losses.append([p.grad for p in net.parameters()])

def trains(step):
    optimizer.zero_grad()
    loss = net(batch()).sum()
    loss.backward()
    optimizer.step()

def accumulates(step):
    if step % 8 == 0:
        optimizer.zero_grad()
    net(batch()).sum().backward()
    if step % 8 == 7:
        optimizer.step()

kept = {"deque": collections.deque(maxlen=4)}

def keeps_the_last_four(step):
    kept["deque"].append(batch())

def copies_once(step):
    if "ema" not in kept:
        kept["ema"] = [p.detach().clone() for p in net.parameters()]
    for average, p in zip(kept["ema"], net.parameters()):
        average.lerp_(p.detach(), 0.1)

def replaces(step):
    kept["buffer"] = batch(32 + step)

def keeps_every_second(step):
    kept.setdefault("second", []).append(batch()) if step % 2 else None

def keeps_the_last_twenty(step):
    kept.setdefault("twenty", collections.deque(maxlen=20)).append(torch.ones(99, device=device))  # keeps_the_last_twenty

leaky = [keeps_the_graph, fills_a_cache, keeps_grad_fn, keeps_a_closure,
         fills_a_replay_buffer, keeps_gradients]
sound = [trains, accumulates, keeps_the_last_four, copies_once, replaces, keeps_every_second]
trains(0)  # with what libraries make once
answers = {f.__name__: watch(f, 8) for f in leaky}
answers |= {f.__name__: watch(f, 18) for f in sound}
answers["keeps_the_last_twenty"] = watch(keeps_the_last_twenty, 30)

# Beside a recording and its steps.
snapshot = memlab.MemorySnapshot(source=source).start()
def both(step):
    fills_a_cache(100 + step)
    memlab.step()
answers["both"] = watch(both, 8)
snapshot.stop()
memlab.leaks(None)
notes = [n["values"][0] for n in snapshot.data().notes() if n["kind"] == "step"]
print(json.dumps({"answers": answers, "notes": notes, "file": __file__}))
"""


def line_of(name):
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        if name in line.partition("  # ")[2].split():
            return number
    raise AssertionError(f"{name} is at no line")


def figures(answer):
    return {leak["line"]: leak for leak in answer}


@pytest.fixture(scope="module", params=["cuda", "cpu"])
def done(request, device_environment, tmp_path_factory):
    from warm import run

    program = tmp_path_factory.mktemp("leaks") / "program.py"
    program.write_text(PROGRAM)
    done = run(program, request.param, env=device_environment, cwd=program.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    done.device = request.param
    done.told = json.loads(done.stdout)
    done.answers = done.told["answers"]
    return done


LEAKS = {
    # 32 rows of 64, 256 or 1 floats
    "fills_a_cache": 32 * 64 * 4,
    "keeps_a_closure": 32 * 64 * 4,
    "fills_a_replay_buffer": 3 * 4000,
    "keeps_the_graph": 32 * 256 * 4,
    "keeps_grad_fn": 32 * 256 * 4,
}


@pytest.mark.cuda
@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_told_from_its_fifth_step_on_at_its_line(done, name):
    answers = done.answers[name]
    # The first call begins; after five steps the row has five.
    assert [bool(answer) for answer in answers] == [False] * 5 + [True] * 4
    for steps, answer in enumerate(answers[5:], 5):
        leak = figures(answer)[line_of(name)]
        assert leak["file"] == done.told["file"] and leak["steps"] == steps
        assert leak["bytes"] == steps * leak["bytes_per_step"]
        assert LEAKS[name] <= leak["bytes_per_step"] < LEAKS[name] + 3 * 512
        assert leak["blocks"] == steps * (3 if name == "fills_a_replay_buffer" else 1)
        assert answer == sorted(answer, key=lambda leak: -leak["bytes"])


@pytest.mark.cuda
def test_what_a_graph_keeps_has_its_module(done):
    leak = figures(done.answers["keeps_the_graph"][-1])[line_of("keeps_the_graph")]
    assert (leak["module"], leak["function"]) == ("Net", "forward")
    assert leak["phase"] == "forward" and not leak["backward"]


@pytest.mark.cuda
def test_what_a_backward_pass_leaves_has_its_forward_line(done):
    leaks = [leak for leak in done.answers["keeps_gradients"][-1] if leak["backward"]]
    source = PROGRAM.splitlines()
    assert {source[leak["line"] - 1].strip() for leak in leaks} == {
        "x = self.up(x)",
        "return self.down(x)",
    }
    # Of both layers the gradients of weight and bias.
    sizes = sum(p * 4 for p in (64 * 256, 256, 256 * 64, 64))
    assert sizes <= sum(leak["bytes_per_step"] for leak in leaks) < sizes + 4 * 512


@pytest.mark.cuda
@pytest.mark.parametrize(
    "name",
    [
        "trains",
        "accumulates",
        "keeps_the_last_four",
        "copies_once",
        "replaces",
        "keeps_every_second",
    ],
)
def test_what_does_not_grow_is_no_leak(done, name):
    assert done.answers[name] == [[]] * 19


@pytest.mark.cuda
def test_a_bounded_deque_leaks_until_it_is_full(done):
    answers = done.answers["keeps_the_last_twenty"]
    told = [len(answer) for answer in answers]
    assert told == [0] * 5 + [1] * 16 + [0] * 10
    assert answers[20][0]["steps"] == 20
    assert answers[20][0]["line"] == line_of("keeps_the_last_twenty")


@pytest.mark.cuda
def test_each_line_is_said_once(done):
    lines = done.stderr.splitlines()
    said = [line for line in lines if f"program.py:{line_of('fills_a_cache')} " in line]
    # Once by each of the two that watched it.
    assert len(said) == 2
    where = "cuda:0" if done.device == "cuda" else "cpu"
    assert said[0] == (
        f"memlab: {done.told['file']}:{line_of('fills_a_cache')} "
        f"(`cache[step] = batch() * 2  # fills_a_cache`) leaks 8.00 KiB a step on {where}: "
        "in each of the last 5 steps something of it was left that still lives; "
        "memlab.holders(tensor) says who holds a tensor"
    )


@pytest.mark.cuda
def test_a_recording_and_its_steps_are_not_disturbed(done):
    assert done.told["notes"] == list(range(8))
    leaks = figures(done.answers["both"][-1])
    assert leaks[line_of("fills_a_cache")]["steps"] == 8


# ---- Without torch: the scripted source ----

BASE = 1 << 40


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(_leaks, "_under_way", None)
    monkeypatch.setattr(_leaks, "_complaints", set())
    script = _core.Script()
    script.reset()
    script.emit("segment_alloc", BASE, 20 << 20)
    yield script
    memlab.leaks(None)


def leave(script, place):
    script.emit("alloc", BASE + 512 * place, 512)


def test_a_number_again_is_the_same_step_and_a_lower_one_begins_anew(script, torch):
    assert memlab.leaks(0, source="script") == []
    for step in range(1, 5):
        leave(script, step)
        assert memlab.leaks(step) == []
        leave(script, 100 + step)
        assert memlab.leaks(step) == []
    leave(script, 5)
    (leak,) = memlab.leaks(5)
    check(leak, _answers.Leak)
    assert not undocumented(leak)
    # The blocks left after a step's first call count to the next step.
    assert leak["bytes"] == 9 * 512 and leak["steps"] == 5
    assert memlab.leaks(5) == [leak]
    assert memlab.leaks(3) == []
    leave(script, 6)
    assert memlab.leaks(4) == []


def test_lost_events_are_said_and_begin_rows_again(script, torch, capsys, monkeypatch):
    monkeypatch.setattr(_leaks, "_MAX_ENTRIES", 10)
    memlab.leaks(0, source="script")
    for step in range(1, 6):
        leave(script, step)
        answer = memlab.leaks(step)
    assert len(answer) == 1
    capsys.readouterr()
    for i in range(100_000):
        script.emit("alloc", BASE + (10 << 20), 512)
        script.emit("free_requested", BASE + (10 << 20), 512)
        script.emit("free_completed", BASE + (10 << 20), 512)
    assert memlab.leaks(6) == []
    assert "which begins to count again" in capsys.readouterr().err


def test_what_goes_wrong_is_said_once_and_never_raised(script, capsys):
    for step in range(3):
        assert memlab.leaks(step, source="nonsense") == []
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "memlab: leaks() could not look: unknown source 'nonsense': expected 'cuda', "
        "'cpu' or 'script'"
    ]


def test_a_step_that_is_no_number_is_said_and_the_count_goes_on(script, torch, capsys):
    memlab.leaks(0, source="script")
    for step in range(1, 6):
        leave(script, step)
        assert memlab.leaks(f"epoch {step}") == []
        answer = memlab.leaks(step)
    assert [leak["steps"] for leak in answer] == [5]
    said = capsys.readouterr().err
    assert said.count("leaks() could not look") == 1
    assert "step must be an integer or None, not str" in said


def test_threads_that_end_a_step_at_once_get_the_answer_before(script, torch, capsys):
    memlab.leaks(0, source="script")
    for step in range(1, 6):
        leave(script, step)
        answer = memlab.leaks(step)
    assert len(answer) == 1
    with _leaks._under_way._ending:  # as while another thread is about it
        assert memlab.leaks(6) == answer
    leave(script, 6)
    assert [leak["steps"] for leak in memlab.leaks(6)] == [6]
    assert "could not look" not in capsys.readouterr().err
