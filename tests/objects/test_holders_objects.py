"""Who holds an object, of any kind: the search of memlab.holders() without torch.

What holds the target in a test is known by construction; its sentence is written out.
"""

import asyncio
import builtins
import collections
import contextvars
import ctypes
import dataclasses
import functools
import gc
import os
import queue
import sys
import threading
import weakref

import pytest

from memlab import _core
from memlab._objects import holders as _holders

HERE = os.path.basename(__file__)
MODULE = f"of module `{__name__}`"


class Thing:
    pass


class Box:
    def __init__(self, **attributes):
        vars(self).update(attributes)


def told(get):
    """The sentences about what get() returns, but for the local of this function."""
    target = get()
    (paths, unmet), *_ = _core.find_holders([target], ())
    said = [holder.path for holder in _holders._tell(paths, unmet)]
    own = [path for path in said if path.startswith("local `target` of told()")]
    assert len(own) == 1
    return [path for path in said if path not in own]


def line(function, offset):
    return function.__code__.co_firstlineno + offset


planted = None


@pytest.fixture(autouse=True)
def pull_up():
    yield
    globals()["planted"] = None


def plant(value):
    globals()["planted"] = value


def by(path):
    return f"global `planted{path}` {MODULE}"


def test_lists_dicts_and_attributes():
    plant(Box(history=[0, 1, 2, {"loss": Thing()}]))
    assert told(lambda: planted.history[3]["loss"]) == [by(".history[3]['loss']")]
    plant({("a", 1): Thing()})
    assert told(lambda: planted["a", 1]) == [by("[('a', 1)]")]
    plant({7: (None, Thing())})
    assert told(lambda: planted[7][1]) == [by("[7][1]")]


def test_every_reference_is_told_shortest_first():
    thing = Thing()
    plant(Box(deep=Box(first=thing), last=thing))
    del thing
    assert told(lambda: planted.last) == [by(".last"), by(".deep.first")]


def test_local_of_a_running_function():
    def run():
        loss = Thing()
        return told(lambda: loss)

    # The cell is one reference, by whatever frame it is reached.
    where = f"{HERE}:{line(run, 2)}"
    name = "run()" if sys.version_info < (3, 11) else f"{run.__qualname__}()"
    assert run() == [f"local `loss` of {name} at {where}"]


def test_an_attribute_of_self_is_no_local_variable():
    class Trainer:
        def __init__(self):
            self.outputs = [0, Thing()]

        def step(self):
            return told(lambda: self.outputs[1])

    # Of Python 3.10 the name has no class.
    name = "step" if sys.version_info < (3, 11) else Trainer.step.__qualname__
    where = f"{HERE}:{line(Trainer.step, 1)}"
    said = Trainer().step()
    assert said == [f"`self.outputs[1]` in {name}() at {where}"]


def test_local_of_another_thread():
    ready, go = threading.Event(), threading.Event()
    seen = []

    def work():
        batch = Thing()
        seen.append(weakref.ref(batch))
        ready.set()
        go.wait()

    thread = threading.Thread(target=work, name="loader")
    thread.start()
    ready.wait()
    try:
        name = "work" if sys.version_info < (3, 11) else work.__qualname__
        place = f"{HERE}:{line(work, 4)}"
        assert told(lambda: seen[0]()) == [
            f"local `batch` of {name}() at {place} of thread `loader`"
        ]
    finally:
        go.set()
        thread.join()


def test_an_argument_hides_no_other_reference():
    """From CPython 3.14 on its object does not count it: the caller has it."""

    def work(batch, reference):
        return told(reference)

    def run():
        loss = Thing()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(loss))
        try:
            return work(loss, weakref.ref(loss))
        finally:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(loss))

    prefix = "" if sys.version_info < (3, 11) else run.__qualname__[: -len("run")]
    *paths, outside = run()
    assert paths == [
        f"local `batch` of {prefix}work() at {HERE}:{line(work, 1)}",
        f"local `loss` of {prefix}run() at {HERE}:{line(run, 4)}",
    ]
    # Before, the argument's place on the caller's stack may be taken for its holder.
    left = f"a temporary value of {prefix}run() at {HERE}:{line(run, 4)}"
    assert outside in ["held outside Python: 1 reference", left]


def make_step():
    cache = [Thing()]

    def step():
        return cache

    return step


def test_closure_variable():
    plant(make_step())
    assert told(lambda: planted()[0]) == [
        "closure variable `cache[0]` of `make_step.<locals>.step`, reached from "
        + by("")
    ]


def test_default_argument():
    def positional(a, b=Thing()):  # noqa: B008
        return b

    def keyword(*, option=Thing()):  # noqa: B008
        return option

    name = "test_default_argument.<locals>."
    plant([positional, keyword])
    del positional, keyword
    assert told(lambda: planted[0](1)) == [
        f"default argument `b` of `{name}positional`, reached from " + by("[0]")
    ]
    assert told(lambda: planted[1]()) == [
        f"default argument `option` of `{name}keyword`, reached from " + by("[1]")
    ]


def fail(message):
    batch = Thing()
    raise ValueError(message, weakref.ref(batch))


def test_kept_exception():
    try:
        fail("x")
    except ValueError as error:
        plant(error)
    place = f"{HERE}:{line(fail, 2)}"
    assert told(lambda: planted.args[1]()) == [
        f"local `batch` of fail() at {place}, in the traceback of {by('')}"
    ]


def test_locals_of_a_kept_frame_that_were_looked_at():
    """As debuggers and IPython do, which leaves CPython before 3.13 with a dict of them."""
    try:
        fail("x")
    except ValueError as error:
        plant(error)
    assert list(planted.__traceback__.tb_next.tb_frame.f_locals) == ["message", "batch"]
    place = f"{HERE}:{line(fail, 2)}"
    assert told(lambda: planted.args[1]()) == [
        f"local `batch` of fail() at {place}, in the traceback of {by('')}"
    ]


def test_a_public_name_on_the_way():
    plant(Box(_oh={2: Thing()}))
    planted.Out = planted._oh
    assert told(lambda: planted.Out[2]) == [by(".Out[2]")]
    planted.Out = None
    assert told(lambda: planted._oh[2]) == [by("._oh[2]")]


def count():
    first = Thing()
    yield first


def test_suspended_generator_and_coroutine():
    plant(count())
    assert told(lambda: next(planted)) == [
        f"local `first` of suspended count() at {HERE}:{line(count, 2)}, "
        f"reached from {by('')}"
    ]


def test_task_and_asynchronous_generator():
    reference = []

    async def fetch():
        batch = Thing()
        reference.append(weakref.ref(batch))
        await asyncio.Event().wait()

    async def stream():
        part = Thing()
        reference.append(weakref.ref(part))
        yield

    async def main():
        plant([asyncio.create_task(fetch()), stream()])
        await asyncio.sleep(0)
        await planted[1].__anext__()
        said = [told(one) for one in reference]
        planted[0].cancel()
        await planted[1].aclose()
        return said

    def place(function, offset):
        name = (
            function.__name__ if sys.version_info < (3, 11) else function.__qualname__
        )
        return f"suspended {name}() at {HERE}:{line(function, offset)}"

    (task,), (generator,) = asyncio.run(main())
    assert task.startswith(
        f"local `batch` of {place(fetch, 3)}, reached from inside a "
    )
    assert generator == f"local `part` of {place(stream, 3)}, reached from {by('[1]')}"


@pytest.mark.parametrize("size", [4, None])
def test_cached_result(size):
    @functools.lru_cache(maxsize=size)
    def tokens(n):
        return Thing()

    plant(tokens)
    del tokens
    assert told(lambda: planted(1)) == [
        "a cached result of `test_cached_result.<locals>.tokens`, reached from "
        + by("")
    ]


def test_containers_of_the_standard_library():
    plant(collections.deque([1, Thing()]))
    assert told(lambda: planted[1]) == [by("[1]")]
    plant({Thing()})
    assert told(lambda: next(iter(planted))) == ["a member of " + by("")]
    plant({Thing(): 1})
    assert told(lambda: next(iter(planted))) == ["a key of " + by("")]
    plant(queue.Queue())
    planted.put(Thing())
    assert told(lambda: planted.queue[0]) == [by(".queue[0]")]
    plant(collections.defaultdict(list, {"k": [Thing()]}))
    assert told(lambda: planted["k"][0]) == [by("['k'][0]")]
    plant(collections.namedtuple("Point", "x y")(1, Thing()))
    assert told(lambda: planted.y) == [by(".y")]
    plant(functools.partial(print, Thing(), end=Thing()))
    assert told(lambda: planted.args[0]) == [by(".args[0]")]
    assert told(lambda: planted.keywords["end"]) == [by(".keywords['end']")]


@pytest.mark.skipif(sys.version_info < (3, 15), reason="PEP 814 is of Python 3.15")
def test_frozen_dict():
    plant(builtins.frozendict(k=[Thing()]))
    assert told(lambda: planted["k"][0]) == [by("['k'][0]")]
    plant(builtins.frozendict({Thing(): 1}))
    assert told(lambda: next(iter(planted))) == ["a key of " + by("")]


class Config(dict):
    pass


class Members(set):
    pass


def test_attributes_of_containers():
    plant(Config(item=Thing()))
    planted.attribute = Thing()
    assert told(lambda: planted["item"]) == [by("['item']")]
    assert told(lambda: planted.attribute) == [by(".attribute")]
    plant(Members([Thing()]))
    planted.attribute = Thing()
    assert told(lambda: next(iter(planted))) == ["a member of " + by("")]
    assert told(lambda: planted.attribute) == [by(".attribute")]


def test_keys_that_are_no_names():
    # CPython refuses to write out so long an int.
    plant({10**5000: Thing()})
    assert told(lambda: planted[10**5000]) == [by("[<int>]")]
    plant({"x" * 1000: Thing()})
    assert told(lambda: planted["x" * 1000]) == [by(f"['{'x' * 79}...]")]


@pytest.mark.parametrize(
    "more, said",
    [
        (0, ""),
        (1, ", and 1 more reference there"),
        (99_984, ", and 99,984 more references there"),
    ],
)
def test_what_one_container_holds_very_often(more, said):
    plant([Thing()] * (16 + more))
    expected = [by(f"[{i}]") for i in range(16)]
    expected[-1] += said
    assert told(lambda: planted[0]) == expected


class Slots:
    __slots__ = ("value",)


@dataclasses.dataclass
class Data:
    value: object


class Class:
    attribute = None

    def method(self):
        return self


def test_attributes_of_all_sorts():
    plant(Slots())
    planted.value = Thing()
    assert told(lambda: planted.value) == [by(".value")]
    plant(Data(Thing()))
    assert told(lambda: planted.value) == [by(".value")]
    plant(Class().method)
    assert told(lambda: planted.__self__) == [by(".__self__")]
    Class.attribute = Thing()
    try:
        assert told(lambda: Class.attribute) == [f"global `Class.attribute` {MODULE}"]
    finally:
        Class.attribute = None


def test_thread_local_and_context_variable():
    plant(threading.local())
    planted.scratch = Thing()
    assert told(lambda: planted.scratch) == [f"thread-local `planted.scratch` {MODULE}"]

    variable = contextvars.ContextVar("request")
    context = contextvars.copy_context()
    context.run(variable.set, Thing())
    plant(context)
    del context
    assert told(lambda: planted[variable]) == [
        "context variable `request`, reached from " + by("")
    ]


def test_what_a_loop_works_with():
    def loop():
        for thing in iter([Thing()]):
            reference = weakref.ref(thing)
            del thing
            said = told(reference)
        return said

    said = loop()
    assert len(said) == 1
    assert said[0].startswith(
        "`[0]` inside a `list_iterator`, reached from a temporary value of "
    )
    assert said[0].endswith(f" at {HERE}:{line(loop, 4)}")


def test_weak_references_hold_nothing():
    thing = Thing()
    plant(weakref.WeakValueDictionary(k=thing))
    reference = weakref.ref(thing)
    cell = [thing]
    del thing
    assert len(told(lambda: reference())) == 1  # the list above, a local
    del cell
    assert reference() is None


def test_garbage_that_only_a_cycle_holds():
    gc.disable()
    try:
        knot = Box(thing=Thing())
        knot.self = knot
        reference = weakref.ref(knot.thing)
        del knot
        (said,) = told(reference)
        assert said == "a reference cycle holds it: gc.collect() frees it"
        (paths, unmet), *_ = _core.find_holders([reference()], ())
        (holder,) = _holders._tell(paths, unmet)
        assert holder.path == f"only {said}"
        assert holder.kind == "cycle"
    finally:
        gc.enable()
    gc.collect()
    assert reference() is None


class Hostile:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __eq__(self, other):
        raise RuntimeError("eq")

    def __repr__(self):
        raise RuntimeError("repr")

    __hash__ = object.__hash__
    __class__ = property(lambda self: 1 / 0)


def test_strange_objects_on_the_heap_are_not_asked():
    dead = weakref.proxy(Thing())
    hostile = Hostile()
    object.__setattr__(hostile, "inner", Thing())
    half = Box.__new__(Box)
    plant({hostile: [dead, half, {"thing": Thing()}], "h": hostile})
    del hostile
    (said,) = told(lambda: next(iter(planted.values()))[2]["thing"])
    # The key is an object without a name but its way.
    assert said == by("[planted['h']][2]['thing']")
    assert told(lambda: object.__getattribute__(planted["h"], "inner")) == [
        by("['h'].inner"),
    ]


def test_deep_structures_need_no_recursion():
    node = None
    last = Thing()
    for _ in range(100_000):
        node = (node, last) if node is None else (node,)
    plant(node)
    del node
    reference = weakref.ref(last)
    del last
    (said,) = told(reference)
    assert said == by("[0]" * 99_999 + "[1]")
    # Freed from the outside in: CPython's own limits hold here as well.
    while planted and planted[0] is not None:
        plant(planted[0])


def test_nothing_is_changed():
    plant(Box(things=[Thing() for _ in range(50)]))
    reference = weakref.ref(planted.things[7])
    told(reference)
    gc.collect()
    before = [sys.getrefcount(thing) for thing in planted.things], len(gc.get_objects())
    for _ in range(5):
        told(reference)
    after = [sys.getrefcount(thing) for thing in planted.things], len(gc.get_objects())
    assert before[0] == after[0]
    assert abs(after[1] - before[1]) <= 5
    assert gc.isenabled()
    plant(None)
    assert reference() is None


def test_many_targets_in_one_search():
    plant([Thing() for _ in range(1000)])
    found = _core.find_holders(list(planted), ())
    said = [_holders._tell(paths, unmet) for paths, unmet in found]
    assert [[h.path for h in holders] for holders in said] == [
        [by(f"[{i}]")] for i in range(1000)
    ]


def test_targets_that_hold_each_other():
    one, other = Box(), Box()
    one.other, other.one = other, one
    plant(one)
    targets = [one, other]
    del one, other
    found = _core.find_holders(targets, ())
    said = [[holder.path for holder in _holders._tell(*pair)] for pair in found]
    assert said == [[by("")], [by(".other")]]
    plant(None)
    gc.disable()
    try:
        # But for the list of the question nothing else has them now.
        found = _core.find_holders(targets, ())
    finally:
        gc.enable()
    said = [[holder.path for holder in _holders._tell(*pair)] for pair in found]
    assert said == [["only a reference cycle holds it: gc.collect() frees it"]] * 2


def test_another_thread_that_runs_meanwhile():
    stop = threading.Event()

    def churn():
        kept = []
        while not stop.is_set():
            kept.append({"k": [object() for _ in range(10)]})
            del kept[:-50]

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        plant([Thing()])
        for _ in range(5):
            assert told(lambda: planted[0]) == [by("[0]")]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
