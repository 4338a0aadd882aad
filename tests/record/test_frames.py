"""Captured Python stacks against what Python's own tools say, on the running Python.

The product's files are compiled into small extension modules of their own, with functions to
capture a stack now and to name it later (tests/support/stackprobe.py).
"""

import asyncio
import gc
import sys
import threading
import traceback
from random import Random

import pytest
from stackprobe import MAX_FRAMES, OUTER_FRAMES, build, check, expected, kept, recurse

NO_PYTHON, STACK_LOST = 4, 8  # ML_EVENT_*


# ---- which way stacks are captured ----


def test_the_walk_is_used_on_known_pythons(probe):
    known = sys.implementation.name == "cpython" and sys.version_info < (3, 16)
    supported, reason = probe.supported()
    assert bool(supported) == known
    assert (reason is None) == bool(supported)


# ---- kinds of frames ----


@pytest.mark.parametrize("depth", [0, 1, 20, 100])
def test_recursion(probe, depth):
    got, want = recurse(depth, lambda: (probe.capture(), expected()))
    check(probe, got, want)
    assert [name for name, _, _ in want].count("recurse") == depth + 1


@pytest.fixture
def deep():
    """deep(depth, function): calls it in a thread of its own, so many frames deep."""
    limit = sys.getrecursionlimit()
    size = threading.stack_size(64 << 20)
    sys.setrecursionlimit(12000)

    def call(depth, function):
        results = []

        def main():
            here = len(expected())
            # function, recurse * (n + 1), and the frames up to here
            results.append(recurse(depth - here - 2, function))

        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
        return results[0]

    yield call
    threading.stack_size(size)
    sys.setrecursionlimit(limit)


@pytest.mark.parametrize("depth", [255, 256, 257, 258, 300, 1000, 5000])
@pytest.mark.parametrize("way", ["probe", "public_probe"])
def test_deep_stacks_keep_both_ends(request, deep, way, depth):
    probe = request.getfixturevalue(way)
    got, want = deep(depth, lambda: (probe.capture(), expected()))
    assert len(want) == depth
    assert [name for name, _, _ in want[-3:]] == ["run", "_bootstrap_inner", "_bootstrap"]
    check(probe, got, want)


def test_deep_stacks_whose_depth_changes(probe, deep):
    """What is remembered of the last walk never stands for another stack."""
    random = Random(19)
    seen = []

    def leaf():
        seen.append((probe.capture_both(), expected()))

    def climb(left):
        if left > 0 and random.random() < 0.7:
            climb(left - 1)
        for _ in range(random.randrange(3)):
            recurse(random.choice([0, 1, 2, 130, 260, 700]), leaf)

    def main():
        for depth in [0, 20, 25, 28, 30, 100, 150, 153, 156, 157, 160, 280, 290] * 3:
            recurse(depth, lambda: climb(8))

    deep(100, main)
    assert len(seen) > 100
    depths = {len(want) for _, want in seen}
    assert len([d for d in depths if d > MAX_FRAMES]) > 10
    for (recalled, fresh, flags), want in seen:
        assert (recalled, flags) == (fresh, 0)
        assert probe.resolve(recalled) == kept(want)


def test_deep_stacks_with_a_generator_in_the_part_left_out(probe, deep):
    def generate():
        yield recurse(200, lambda: (probe.capture(), expected()))

    got, want = deep(400, lambda: next(generate()))
    assert [name for name, _, _ in want].index("generate") in range(128, 400)
    check(probe, got, want)


def test_what_is_left_out_is_counted_to_the_last_digit(probe, deep):
    for left_out in (1, 9, 10, 99, 100, 999, 1000, 9999):
        # A function of C has no frame.
        got = deep(MAX_FRAMES + left_out + 1, probe.capture)
        frames = probe.resolve(got[0])
        assert frames[MAX_FRAMES - OUTER_FRAMES] == (f"<{left_out} frames left out>", "", 0)


def test_a_table_that_fills_up_in_the_middle_of_a_deep_stack(probe, deep):
    lost = {}
    for nodes in (1, 127, 128, 129, 130, 256, 257):
        lost[nodes] = deep(1000, lambda: probe.capture_full(nodes)) == (0, STACK_LOST)
    # As many as are kept, and the one for those left out.
    assert lost == {n: n < MAX_FRAMES + 1 for n in lost}


def test_statements_over_several_lines(probe):
    def inner(*captured):
        return captured

    got, want = inner(
        0,
        (probe.capture(), expected()),
        None,
    )[1]
    check(probe, got, want)


class Model:
    def __init__(self, probe):
        self.probe = probe
        self.seen = []

    def method(self):
        return self.probe.capture(), expected()

    @classmethod
    def of_class(cls, probe):
        return probe.capture(), expected()

    @staticmethod
    def static(probe):
        return probe.capture(), expected()

    @property
    def attribute(self):
        return self.probe.capture(), expected()

    def __getitem__(self, index):
        return self.probe.capture(), expected()

    def __lt__(self, other):
        self.seen.append((self.probe.capture(), expected()))
        return True


def test_methods_and_what_calls_them_implicitly(probe):
    model = Model(probe)
    for got, want in (
        model.method(),
        Model.of_class(probe),
        Model.static(probe),
        model.attribute,
        model[0],
    ):
        check(probe, got, want)


def test_lambdas_comprehensions_and_class_bodies(probe):
    check(probe, *(lambda: (probe.capture(), expected()))())
    check(probe, *[(probe.capture(), expected()) for _ in range(1)][0])
    check(probe, *next((probe.capture(), expected()) for _ in range(1)))
    check(probe, *{key: (probe.capture(), expected()) for key in [1]}[1])

    class Body:
        both = (probe.capture(), expected())

    check(probe, *Body.both)


def test_calls_back_from_c(probe):
    seen = []
    sorted([2, 1], key=lambda x: seen.append((probe.capture(), expected())) or x)
    models = [Model(probe), Model(probe)]
    models.sort()
    for model in models:
        seen += model.seen
    list(map(lambda x: seen.append((probe.capture(), expected())), [1]))
    assert len(seen) == 4
    for got, want in seen:
        check(probe, got, want)


def test_finalizers(probe):
    seen = []

    class Dying:
        def __del__(self):
            seen.append((probe.capture(), expected()))

    def at_return():
        dying = Dying()
        assert dying

    def at_unwinding():
        dying = Dying()
        raise ValueError(dying)

    at_return()
    try:
        at_unwinding()
    except ValueError:
        pass
    cycle = Dying()
    cycle.itself = cycle
    del cycle
    gc.collect()
    assert len(seen) == 3
    for got, want in seen:
        check(probe, got, want)


def test_generators(probe):
    def leaf():
        yield probe.capture(), expected()
        yield probe.capture(), expected()

    def outer():
        yield from leaf()
        try:
            yield probe.capture(), expected()
        finally:
            closing.append((probe.capture(), expected()))

    closing = []
    generator = outer()
    for _ in range(3):
        check(probe, *next(generator))
    generator.close()
    check(probe, *closing[0])


def test_coroutines(probe):
    seen = []

    async def source():
        for _ in range(2):
            seen.append((probe.capture(), expected()))
            await asyncio.sleep(0)
            yield

    class Manager:
        async def __aenter__(self):
            seen.append((probe.capture(), expected()))

        async def __aexit__(self, *exception):
            seen.append((probe.capture(), expected()))

    async def leaf():
        async with Manager():
            async for _ in source():
                seen.append((probe.capture(), expected()))

    async def main():
        await asyncio.gather(leaf(), asyncio.create_task(leaf()))

    asyncio.run(main())
    assert len(seen) == 12
    for got, want in seen:
        check(probe, got, want)


def test_imported_modules(probe, tmp_path, monkeypatch):
    source = "import sys\nboth = sys.probe.capture(), sys.expected()\n"
    tmp_path.joinpath("captured_at_import.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "probe", probe, raising=False)
    monkeypatch.setattr(sys, "expected", expected, raising=False)
    import captured_at_import

    check(probe, *captured_at_import.both)
    # Python's own import code, whose frames are in no file, is in between.
    assert any("importlib" in name for _, name, _ in captured_at_import.both[1])


def test_while_being_traced(probe):
    calls = []

    def trace(frame, event, argument):
        calls.append(event)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        got, want = recurse(3, lambda: (probe.capture(), expected()))
    finally:
        sys.settrace(before)
    check(probe, got, want)
    assert "line" in calls


# ---- names ----

NAMES = {
    "ascii": "plain",
    "latin-1": "größe",
    "two bytes": "Größe_функция_関数",
    "four bytes": "𐐀_😀",
    "lone surrogate": "nicht\udcffutf8",
}


@pytest.mark.parametrize("filename", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_of_all_kinds(probe, name, filename):
    namespace = {"probe": probe, "expected": expected}
    path = f"/tmp/{filename}.py"
    source = "\n" * 300 + "def f():\n    return probe.capture(), expected()\n"
    exec(compile(source, path, "exec"), namespace)
    function = namespace["f"]
    function.__code__ = function.__code__.replace(co_name=name)
    got, want = function()
    assert want[0] == (name, path, 302)
    check(probe, got, want)


def test_very_long_names(probe):
    for letter in "aß":
        namespace = {"probe": probe}
        exec("def f(): return probe.capture()", namespace)
        function = namespace["f"]
        function.__code__ = function.__code__.replace(co_name=letter * 5000)
        name = probe.resolve(function()[0])[0][0]
        # What needs transcoding is cut, between characters.
        assert name == letter * (5000 if letter == "a" else 2047)


def test_same_stack_same_id(probe):
    ids = {recurse(5, probe.capture) for _ in range(3)}
    assert len(ids) == 1
    count = probe.count()
    recurse(5, probe.capture)
    assert recurse(6, probe.capture) not in ids
    assert probe.count() > count


# ---- without the GIL, on other threads ----


def test_with_the_gil_released(probe):
    got, want = recurse(10, lambda: (probe.capture_released(), expected()))
    check(probe, got, want)


def test_a_thread_without_python(probe):
    assert probe.capture_foreign() == (0, NO_PYTHON)


def test_threads_see_their_own_frames(probe):
    results = {}
    stop = threading.Event()

    def disturb():
        while not stop.is_set():
            for frame in sys._current_frames().values():
                traceback.extract_stack(frame)
            gc.collect(0)

    def make(number):
        namespace = {"probe": probe, "expected": expected}
        exec(
            f"def leaf_{number}(n):\n"
            f"    if n:\n"
            f"        return leaf_{number}(n - 1)\n"
            f"    return [(probe.capture_released(), expected()) for _ in '12']\n",
            namespace,
        )
        leaf = namespace[f"leaf_{number}"]

        def run():
            results[number] = [leaf(number + k % 7) for k in range(200)]

        return run

    disturber = threading.Thread(target=disturb)
    threads = [threading.Thread(target=make(number)) for number in range(4)]
    for thread in [disturber, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    disturber.join()
    for number in range(4):
        assert len(results[number]) == 200
        for pairs in results[number][:7] + results[number][-7:]:
            for got, want in pairs:
                check(probe, got, want)


# ---- the public way ----


def test_unknown_pythons_use_the_public_api(public_probe):
    assert public_probe.supported() == (0, "for the test")
    got, want = recurse(10, lambda: (public_probe.capture(), expected()))
    check(public_probe, got, want)


def test_the_public_way_never_waits_for_the_gil(public_probe):
    assert recurse(3, public_probe.capture_released) == (0, NO_PYTHON)
    assert public_probe.capture_foreign() == (0, NO_PYTHON)


def test_a_walk_that_disagrees_is_not_used(tmp_path):
    """With public functions that say something else the walk is switched off."""
    flags = ["-DPROBE_HIDES_FRAMES", "-DPyEval_GetFrame=probe_no_frame"]
    blind = build(tmp_path, "blindprobe", *flags)
    supported, reason = blind.supported()
    assert not supported
    assert reason
    assert blind.capture() == (0, NO_PYTHON)


# ---- as torch has it ----


def test_frames_look_like_torchs(probe, torch):
    gather = torch._C._profiler.gather_traceback
    symbolize = torch._C._profiler.symbolize_tracebacks

    class Module:
        def forward(self):
            return (lambda: (probe.capture(), gather(True, False, False)))()

    def generate():
        yield Module().forward()

    ours, theirs = recurse(3, lambda: next(generate()))
    frames = [(f["name"], f["filename"], f["line"]) for f in symbolize([theirs])[0]]
    assert [name for name, _, _ in frames[:3]] == ["<lambda>", "forward", "generate"]
    check(probe, ours, frames)


def test_native_frames_are_put_where_torch_puts_them(probe, torch):
    """torch's own mixed stack, taken apart, is put together again."""
    gather = torch._C._profiler.gather_traceback
    gathered = []

    def generate():
        yield gather(True, False, False), gather(True, False, True)

    recurse(3, lambda: [1].sort(key=lambda _: gathered.extend(next(generate()))))
    only_python, mixed = torch._C._profiler.symbolize_tracebacks(gathered)
    files = {f["filename"] for f in only_python}
    python = [f["name"] for f in only_python]
    native = [f["name"] for f in mixed if f["filename"] not in files]
    if not any("PyEval_EvalFrame" in name for name in native):
        pytest.skip("this build of Python has no symbols for its interpreter loop")
    assert python[:5] == ["generate", "<lambda>", "<lambda>", "recurse", "recurse"]
    assert probe.splice(python, native) == [f["name"] for f in mixed]
