"""By which numbers a backward allocation meets its forward, from torch's allocators on
the CPU and on CUDA; torch's own word is grad_fn._sequence_nr()."""

import pytest
import sourceprobe
from sourceprobe import BACKWARD, program

NO_SEQUENCE = 2**64 - 1

# Each operation allocates its result and makes one node.
NET = f"""
BACKWARD, NO_SEQUENCE = {BACKWARD}, {NO_SEQUENCE}

def allocs():
    return [e for e in probe.events(NAME) if e["action"] == "alloc"]

def forward(x):
    '''[(grad_fn's class, its number, the allocation of its result)], the result'''
    layers = []
    for operation in (torch.exp, torch.sin, torch.sigmoid, lambda x: x * x, torch.sum):
        before = len(allocs())
        x = operation(x)
        (made,) = allocs()[before:]
        layers.append((type(x.grad_fn).__name__, x.grad_fn._sequence_nr(), made))
    return layers, x

def backward(loss):
    before = len(allocs())
    loss.backward()
    return [e for e in allocs()[before:] if e["flags"] & BACKWARD]

torch.ones(9, device=NAME, requires_grad=True).exp().sum().backward()  # CUDA: warm up
start(NAME)
"""


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def run(request, torch):
    """Runs a program on one source after the other."""

    def run(body):
        body = f"NAME = {request.param!r}\n{NET}{body}"
        if request.param == "cpu":
            return sourceprobe.run(body)
        return request.getfixturevalue("phantom_run")(program(body))

    return run


def test_forward_and_backward_allocations_meet(run):
    run(
        """
w = torch.ones(1000, device=NAME, requires_grad=True)
layers, loss = forward(w)
mine = {made["autograd_thread"] for _, _, made in layers}
assert len(mine) == 1 and 0 not in mine
for _, number, made in layers:
    # The node is made first, so that the thread's next one is counted.
    assert made["sequence"] == number + 1
    assert made["node"] is None and not made["flags"] & BACKWARD
at = {number: name for name, number, _ in layers}
assert len(at) == 5
seen = backward(loss)
met = set()
for event in seen:
    if event["sequence"] == NO_SEQUENCE:
        continue
    name = at[event["sequence"]]
    assert name in event["node"], event
    assert event["autograd_thread"] in mine
    met.add(name)
# ExpBackward0, ... SumBackward0 gives a view of its gradient: no memory.
assert met >= {"SinBackward0", "SigmoidBackward0", "MulBackward0"}, met
"""
    )


def test_a_gradient_that_is_copied_has_a_node_without_a_number(run):
    run(
        """
w = torch.ones(1000, device=NAME, requires_grad=True)
seen = backward(w.sum())
# sum's gradient is one number seen as a thousand; the parameter gets a copy.
copies = [e for e in seen if "AccumulateGrad" in e["node"]]
assert len(copies) == 1 and copies[0]["size"] == 4000, seen
assert copies[0]["sequence"] == NO_SEQUENCE
"""
    )


def test_the_numbers_are_those_of_the_thread_that_ran_the_forward(run):
    run(
        """
import threading
w = torch.ones(1000, device=NAME, requires_grad=True)
own, _ = forward(w)
result = []
thread = threading.Thread(target=lambda: result.extend(forward(w)))
thread.start()
thread.join()
layers, loss = result
(theirs,) = {made["autograd_thread"] for _, _, made in layers}
assert theirs not in {0, own[0][2]["autograd_thread"]}
# A thread counts from 0.
assert [number for _, number, _ in layers] == [0, 1, 2, 3, 4]
numbered = [e for e in backward(loss) if e["sequence"] != NO_SEQUENCE]
assert numbered and {e["autograd_thread"] for e in numbered} == {theirs}
"""
    )


def test_a_python_function_keeps_its_number(run):
    run(
        """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + x
    @staticmethod
    def backward(ctx, gradient):
        return gradient + gradient

w = torch.ones(1000, device=NAME, requires_grad=True)
y = Double.apply(w)
number = y.grad_fn._sequence_nr()
seen = [e for e in backward(y.sum()) if "PyNode" in e["node"]]
assert [e["sequence"] for e in seen] == [number], seen
"""
    )


@pytest.mark.slow
def test_a_thread_beyond_the_field_has_no_numbers(torch):
    sourceprobe.run(
        """
import _thread
start("cpu")
def touch(done):
    torch.empty(1)
    done.release()
done = _thread.allocate_lock()
done.acquire()
for _ in range(65_600):
    _thread.start_new_thread(touch, (done,))
    done.acquire()
allocs = [e for e in probe.events("cpu") if e["action"] == "alloc"]
threads = [e["autograd_thread"] for e in allocs]
assert threads[:2] == [threads[0], threads[0] + 1] and threads[-1] == 0
known = {t for t in threads if t != 0}
assert max(known) == 65_535 and len(known) + threads.count(0) == len(threads)
assert all(e["sequence"] == 0 for e in allocs)
"""
    )
