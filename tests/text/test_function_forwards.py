"""Which lines are in the forward of a torch.autograd.Function: by the code that runs."""

import functools
import sys
import types

import pytest

from memlab._text.function_forwards import FUNCTIONS, NONE, UNKNOWN, FunctionForwards


class Guarded(type):
    """Fails if a class of its kind is asked for anything."""

    def __getattribute__(cls, name):
        raise AssertionError(f"asked for {name}")

    def __subclasses__(cls):
        raise AssertionError("asked for its subclasses")


class Function:
    """What stands for torch's, of which each of a program's is a subclass."""

    @staticmethod
    def forward(*args):
        raise NotImplementedError


def around(function):
    @functools.wraps(function)
    def decorated(*args):
        return function(*args)

    return decorated


class Square(Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x


class Wrapped(Function):
    @staticmethod
    @around
    @around
    def forward(context, x):
        return x + 1


class Inherited(Square):
    pass


class Mixed:
    def forward(context, x):
        return x + 2


class ByMixture(Mixed, Function):
    pass


class Hidden(Function, metaclass=Guarded):
    @staticmethod
    def forward(context, x):
        return x + 3


def shared(context, x):
    return x + 4


class Shared(Function):
    forward = staticmethod(shared)


class BuiltIn(Function):
    forward = staticmethod(len)


class Layer:
    def forward(self, x):
        return x + 5


def forward(x):
    return x + 6


def scaled(scale):
    class Scaled(Function):
        @staticmethod
        def forward(context, x):
            def forward(x):
                return x * scale

            return forward(x)

    return Scaled


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    module = types.ModuleType("torch.autograd.function")
    module.Function = Function
    monkeypatch.setitem(sys.modules, "torch.autograd.function", module)


def told(function):
    """What is told of the last line that FUNCTION runs."""
    code = function.__code__
    line = max(line for *_, line in code.co_lines() if line is not None)
    return FunctionForwards().tell(code.co_filename, code.co_name, line)


@pytest.mark.parametrize(
    "function",
    [
        Square.forward,
        Inherited.forward,
        Mixed.forward,
        Wrapped.forward.__wrapped__.__wrapped__,
        type.__dict__["__dict__"].__get__(Hidden)["forward"].__func__,
    ],
    ids=["own", "inherited", "mixed", "decorated", "hidden"],
)
def test_the_forward_of_a_class(function):
    assert told(function) == FUNCTIONS


def test_no_other_function_of_that_name():
    assert told(Layer.forward) == NONE
    assert told(forward) == NONE
    code = Square.forward.__code__
    assert FunctionForwards().tell("elsewhere.py", "forward", code.co_firstlineno) == NONE


def test_code_that_may_run_elsewhere_is_not_told():
    """A decorator's wrapper is around other functions, too, and a function may be called
    by its own name."""
    assert told(Wrapped.forward) == UNKNOWN
    assert told(shared) == UNKNOWN
    assert told(told) == UNKNOWN


def test_a_class_within_a_function():
    """A function within its forward has lines of its own, though its name is the same."""
    made = scaled(2)
    inner = next(c for c in made.forward.__code__.co_consts if hasattr(c, "co_lines"))
    assert told(made.forward) == FUNCTIONS
    assert told(types.SimpleNamespace(__code__=inner)) == NONE


def test_without_torch_no_function_is_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.autograd.function", None)
    assert told(Square.forward) == NONE
