"""The code of a training loop is read alike on every CPython, without torch."""

import gc
import sys
import types
import weakref

import pytest

from memlab._record import training_loop

NO, YES, UNKNOWN = training_loop.NO, training_loop.YES, training_loop.UNKNOWN
REDUCES, SQUARES, REDUCES_ALONE = (
    training_loop.REDUCES,
    training_loop.SQUARES,
    training_loop.REDUCES_ALONE,
)


class Tensor:
    """Takes part in a pass as torch's does."""

    is_cuda = False

    def mean(self, *_places):
        return self

    sum = square = mean

    def backward(self):
        pass


class Module:
    def _wrapped_call_impl(self, *args):
        return self.forward(*args)

    __call__ = _wrapped_call_impl


class Net(Module):
    """Asks in its forward."""

    def __init__(self):
        self.told = []

    def forward(self, *_args):
        self.told.append(training_loop.facts())
        return Tensor()


class Optimizer:
    def zero_grad(self):
        pass


net = Net()
optimizer = Optimizer()
x = y = None


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    """What stands for torch."""
    stand_in = types.ModuleType("torch")
    stand_in.Tensor = Tensor
    stand_in.nn = types.SimpleNamespace(Module=Module)
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    net.told.clear()
    return stand_in


def told(step):
    """What is told within STEP, which a loop calls."""
    for _ in range(2):
        optimizer.zero_grad()
        step()
    return set(net.told)


def ends():
    out = net(x)
    out.mean().backward()


def returns_none():
    out = net(x)
    out.mean().backward()
    return None


def returns_an_integer():
    out = net(x)
    out.mean().backward()
    return 0


def returns_a_large_integer():
    out = net(x)
    out.mean().backward()
    return 1000


def returns_a_truth():
    out = net(x)
    out.mean().backward()
    return True


def returns_a_number():
    out = net(x)
    out.mean().backward()
    return 0.5


def returns_a_text():
    out = net(x)
    out.mean().backward()
    return "done"


def returns_a_tuple():
    out = net(x)
    out.mean().backward()
    return ()


def returns_early():
    out = net(x)
    if out is None:
        return False
    out.mean().backward()
    return 1


@pytest.mark.parametrize(
    "step",
    [
        *(ends, returns_none, returns_an_integer, returns_a_large_integer, returns_a_truth),
        *(returns_a_number, returns_a_text, returns_a_tuple, returns_early),
    ],
)
def test_variables_end_with_a_function_that_returns_a_constant(step):
    assert {fact[1] for fact in told(step)} == {NO}


def returns_the_output():
    out = net(x)
    out.mean().backward()
    return out


def returns_it_among_others():
    out = net(x)
    out.mean().backward()
    return 0, out


def returns_it_or_nothing():
    out = net(x)
    out.mean().backward()
    if x is None:
        return None
    return out


@pytest.mark.parametrize(
    "step", [returns_the_output, returns_it_among_others, returns_it_or_nothing]
)
def test_what_a_function_returns_may_live_on(step):
    assert {fact[1] for fact in told(step)} == {UNKNOWN}


def kept():
    for _ in range(2):
        optimizer.zero_grad()
        out = net(x)
        out.mean().backward()


def given_up():
    for _ in range(2):
        out = net(x)
        optimizer.zero_grad()
        out.mean().backward()
        del out


def of_two():
    """Two instructions on variables are one from CPython 3.13 on."""
    first, second = x, y
    for _ in range(2):
        out = net(first, second)
        out.mean().backward()
        loss, first = out, second
        del out, loss


def with_a_constant():
    for _ in range(2):
        net((2, 2)).mean().backward()
        optimizer.zero_grad()


def zeroed_at_times():
    for i in range(2):
        net(x).mean().backward()
        if i:
            optimizer.zero_grad()


def left_early():
    for i in range(2):
        net(x).mean().backward()
        if i:
            continue
        optimizer.zero_grad()


def in_a_while():
    steps = 2
    while steps > 0:
        optimizer.zero_grad()
        net(x).mean().backward()
        steps -= 1


def in_two_loops():
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(2):
            net(x).mean().backward()


@pytest.mark.parametrize(
    ("program", "gradients", "output"),
    [
        (kept, NO, YES),
        (given_up, YES, NO),
        (of_two, YES, NO),
        (with_a_constant, NO, NO),
        (zeroed_at_times, UNKNOWN, NO),
        (left_early, UNKNOWN, NO),
        (in_a_while, NO, NO),
        (in_two_loops, YES, NO),
    ],
)
def test_what_a_pass_leaves(program, gradients, output):
    program()
    assert {fact[:2] for fact in net.told} == {(gradients, output)}


def reduced():
    net(x).mean().backward()


def named():
    out = net(x)
    out.mean().backward()


def squared():
    out = net(x)
    loss = out.square().mean()
    loss.backward()


def of_rows():
    net(x).sum((0, 1)).square().mean().backward()


def read_again():
    out = net(x)
    out.mean(out).backward()


def by_a_name_of_a_model(model=net):
    model((2, 2), y).mean().backward()


@pytest.mark.parametrize(
    ("step", "loss"),
    [
        (reduced, REDUCES_ALONE),
        (named, REDUCES),
        (squared, SQUARES),
        (of_rows, UNKNOWN),
        (read_again, UNKNOWN),
        (by_a_name_of_a_model, REDUCES_ALONE),
    ],
)
def test_what_loss_follows(step, loss):
    assert {fact[3] for fact in told(step)} == {loss}


def test_the_call_of_a_model_is_found_behind_a_tuple():
    """Before a backward pass the call is found by the name that it loads."""

    class Last(Tensor):
        def backward(self):
            net.told.append(training_loop.facts())

    class Alone(Module):
        def forward(self, *_args):
            return Last()

    alone = Alone()
    alone((2, 2)).mean().backward()
    assert net.told[-1][3] == REDUCES_ALONE


def test_no_variable_of_the_program_outlives_its_function():
    def loop():
        activation = Tensor()
        refs.append(weakref.ref(activation))
        for _ in range(1):
            net(activation).mean().backward()

    refs = []
    collects = gc.isenabled()
    gc.disable()
    try:
        loop()
        assert refs[0]() is None
    finally:
        if collects:
            gc.enable()
