"""memlab's hooks on optimizer steps, from whatever moment a recording begins: torch raises
where a hook is added while a step goes through them."""

import pytest
import warm

pytestmark = pytest.mark.usefixtures("torch")

PREAMBLE = """
import gc, threading
import torch
import memlab
from torch.optim import optimizer as hooks
from torch.optim.optimizer import (
    register_optimizer_step_post_hook as after,
    register_optimizer_step_pre_hook as before,
)

def optimizer():
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.ones(2)
    return torch.optim.SGD([weight], lr=0.1)

def steps():
    return [n["values"][0] for n in snapshot.data().notes() if n["kind"] == "step"]

def once(function):
    calls = []
    def hook(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            function()
    hook.calls = calls
    return hook

def nothing(*_):
    pass

def alone(dict_of_hooks, *own):
    "Beside the program's hooks OWN is one of memlab's, behind none of them."
    there = list(dict_of_hooks.values())
    assert [h for h in there if h in own] == list(own), there
    assert len(there) == len(own) + 1, there

snapshot = memlab.MemorySnapshot(source="cpu")
sgd = optimizer()
"""


def run(body):
    """Runs a program of its own: only the first recording of a process adds hooks."""
    done = warm.run(PREAMBLE + body, options=("-W", "error:memlab"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["before", "after"])
@pytest.mark.parametrize("others", [0, 2])
def test_a_first_recording_in_a_global_hook(kind, others):
    run(f"""
start = once(snapshot.start)
own = [start] + [once(nothing) for _ in range({others})]
handles = [{kind}(hook) for hook in own]
other = once(nothing)
other_handle = {"after" if kind == "before" else "before"}(other)
sgd.step()
begun = len(steps())  # a step that had begun before the recording may count
assert begun <= 1
for _ in range(3):
    sgd.step()
assert steps() == list(range(begun + 3))
assert all(len(hook.calls) == 4 for hook in [*own, other])
{kind}_hooks = hooks._global_optimizer_{"pre" if kind == "before" else "post"}_hooks
other_hooks = hooks._global_optimizer_{"post" if kind == "before" else "pre"}_hooks
alone({kind}_hooks, *own)
alone(other_hooks, other)
for handle in handles:
    handle.remove()
other_handle.remove()
sgd.step()
assert len(steps()) == begun + 4
assert all(len(hook.calls) == 4 for hook in own)
snapshot.stop()
""")


@pytest.mark.parametrize("register", ["register_step_pre_hook", "register_step_post_hook"])
def test_a_first_recording_in_a_hook_of_one_optimizer(register):
    run(f"""
before(nothing)
after(nothing)
sgd.{register}(once(snapshot.start))
sgd.step()
begun = len(steps())
sgd.step()
assert len(steps()) == begun + 1
alone(hooks._global_optimizer_pre_hooks, nothing)
alone(hooks._global_optimizer_post_hooks, nothing)
snapshot.stop()
""")


def test_a_first_recording_where_both_kinds_of_hooks_are_run():
    """A step in a hook of another step."""
    run("""
inner = optimizer()
handles = [before(once(inner.step)), after(once(snapshot.start))]
sgd.step()
begun = len(steps())
sgd.step()
sgd.step()
assert len(steps()) == begun + 2
assert len(hooks._global_optimizer_pre_hooks) == 2
assert len(hooks._global_optimizer_post_hooks) == 2
snapshot.stop()
""")


@pytest.mark.parametrize("kind", ["before", "after"])
def test_a_first_recording_while_another_thread_is_in_a_hook(kind):
    run(f"""
inside, go_on = threading.Event(), threading.Event()
raised = []

def wait(*_):
    inside.set()
    assert go_on.wait(60)

handle = {kind}(wait)
last = once(nothing)
{kind}(last)

def train():
    try:
        sgd.step()
    except BaseException as error:
        raised.append(error)

thread = threading.Thread(target=train)
thread.start()
assert inside.wait(60)
snapshot.start()
go_on.set()
thread.join()
assert raised == []
assert len(last.calls) == 1
begun = len(steps())
sgd.step()
sgd.step()
assert len(steps()) == begun + 2
handle.remove()
alone({"hooks._global_optimizer_pre_hooks" if kind == "before"
       else "hooks._global_optimizer_post_hooks"}, last)
snapshot.stop()
""")


def test_many_threads_that_step_while_recordings_begin_and_end():
    run("""
before(nothing)
after(nothing)
begun, raised = threading.Event(), []

def train():
    own = optimizer()
    try:
        begun.wait(60)
        for _ in range(300):
            own.step()
    except BaseException as error:
        raised.append(error)

threads = [threading.Thread(target=train) for _ in range(4)]
for thread in threads:
    thread.start()
begun.set()
for _ in range(20):
    snapshot.start()
    snapshot.stop()
for thread in threads:
    thread.join()
assert raised == [], raised
snapshot.start()
sgd.step()
sgd.step()
assert len(steps()) == 2
alone(hooks._global_optimizer_pre_hooks, nothing)
alone(hooks._global_optimizer_post_hooks, nothing)
snapshot.stop()
""")


def test_a_hook_whose_place_was_borrowed_keeps_its_say():
    """What the program's hook makes of the arguments, and its removal while memlab's hook
    stands behind it."""
    run("""
seen = []

class Custom(torch.optim.SGD):
    def step(self, closure=None, word=None):
        seen.append(word)

def rewrite(optimizer, arguments, keywords):
    if not seen:
        snapshot.start()
    return arguments, {**keywords, "word": "rewritten"}

custom = Custom([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
handle = before(rewrite)
custom.step()
handle.remove()
custom.step(word="own")
custom.step(word="own")
assert seen == ["rewritten", "own", "own"], seen
assert len(steps()) >= 2
alone(hooks._global_optimizer_pre_hooks)
alone(hooks._global_optimizer_post_hooks)
snapshot.stop()
""")


def test_a_removal_before_the_hook_had_a_place_of_its_own():
    run("""
def start_and_see():
    snapshot.start()
    borrowed = list(hooks._global_optimizer_post_hooks.values())
    assert hook not in borrowed and len(borrowed) == 1

hook = once(start_and_see)
handle = after(hook)
sgd.step()
handle.remove()
assert not hooks._global_optimizer_post_hooks
begun = len(steps())
sgd.step()
assert len(steps()) == begun + 1
snapshot.stop()
""")
