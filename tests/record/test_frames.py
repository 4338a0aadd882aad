"""Captured Python stacks against what Python's own tools say, on the running Python.

The product's files are compiled here into small extension modules of their own, with
functions to capture a stack now and to name it later (tests/helpers/stackprobe.c).
"""

import asyncio
import gc
import glob
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
import traceback
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_PYTHON, STACK_LOST = 4, 8  # ML_EVENT_*
MAX_FRAMES, OUTER_FRAMES = 256, 128  # ML_FRAMES_MAX, ML_FRAMES_OUTER


def build(folder, name, *flags):
    """The extension module NAME, compiled with FLAGS."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler: {compiler[0]} not found")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        pytest.skip(f"no headers of this Python in {include}")
    product = "codes frames frames_check frames_public"
    core = "stack_cache stacks stacks_objects stacks_resolve origins linetable region base"
    core += " recording recording_validate interner"
    library = folder / f"{name}.so"
    subprocess.run(
        [
            *compiler,
            *"-std=c11 -O2 -g -Wall -Wextra -fPIC -shared -pthread".split(),
            *("-fvisibility=hidden", "-I", include, "-o", str(library)),
            *(f'-DPROBE_NAME="{name}"', f"-DPROBE_INIT=PyInit_{name}", *flags),
            str(ROOT / "tests/helpers/stackprobe.c"),
            *(str(ROOT / f"csrc/py/frames/{part}.c") for part in product.split()),
            *(f"-I{ROOT / folder}" for folder in ("csrc", "csrc/core", "csrc/py")),
            *(str(next((ROOT / "csrc/core").rglob(f"{part}.c"))) for part in core.split()),
        ],
        check=True,
    )
    spec = importlib.util.spec_from_file_location(name, library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    return build(tmp_path_factory.mktemp("probe"), "stackprobe")


@pytest.fixture(scope="module")
def public_probe(tmp_path_factory):
    """Built as for a Python whose frames are not known."""
    folder = tmp_path_factory.mktemp("public_probe")
    return build(folder, "publicprobe", '-DWALK_UNKNOWN="for the test"')


def expected():
    """The caller's stack in the form of resolve(): innermost first."""
    frames = traceback.extract_stack(sys._getframe(1))
    return [(f.name, f.filename, f.lineno) for f in reversed(frames)]


def kept(want):
    """What is kept of the stack WANT."""
    if len(want) <= MAX_FRAMES:
        return want
    marker = (f"<{len(want) - MAX_FRAMES} frames left out>", "", 0)
    return [*want[: MAX_FRAMES - OUTER_FRAMES], marker, *want[-OUTER_FRAMES:]]


def check(probe, captured, want):
    """The stack captured on the line of WANT is WANT."""
    stack, flags = captured
    assert flags == 0
    got = probe.resolve(stack)
    want = kept(want)
    assert len(got) == len(want)
    assert got == want


# ---- which way stacks are captured ----


def test_the_walk_is_used_on_known_pythons(probe):
    known = sys.implementation.name == "cpython" and sys.version_info < (3, 15)
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    supported, reason = probe.supported()
    assert bool(supported) == (known and not free_threaded)
    assert (reason is None) == bool(supported)


# ---- kinds of frames ----


def recurse(depth, function):
    if depth > 0:
        return recurse(depth - 1, function)
    return function()


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


# ---- code objects that come and go ----


# Source, file name and the innermost frame of the i-th function of a row.
CHURN = {
    "names": lambda i: (f"def f{i}(c):\n  return c()\n", "<a>", (f"f{i}", "<a>", 2)),
    "files": lambda i: (
        "def f(c): return c()\n",
        f"<cell {i}>",
        ("f", f"<cell {i}>", 1),
    ),
    "folders": lambda i: (
        "def f(c): return c()\n",
        f"/run {i:05}/as/long/as/any/other/model.py",
        ("f", f"/run {i:05}/as/long/as/any/other/model.py", 1),
    ),
    "bodies": lambda i: (
        "def f(c):\n" + "\n" * (i % 97) + "  return c()\n",
        "<a>",
        ("f", "<a>", 2 + i % 97),
    ),
}


@pytest.mark.parametrize("kind", CHURN)
def test_code_objects_recycled_at_the_same_address(probe, kind):
    row = CHURN[kind]
    captured = []
    addresses = set()
    for i in range(10_000):
        source, path, _ = row(i)
        namespace = {}
        exec(compile(source, path, "exec"), namespace)
        del namespace["__builtins__"]
        function = namespace.popitem()[1]
        addresses.add(id(function.__code__))
        captured.append(function(probe.capture)[0])
        del function, namespace
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("the address sanitizer does not give memory out again")
    # The test means something only where addresses did come back.
    assert len(addresses) < 5_000
    for i in range(0, 10_000, 37):
        assert probe.resolve(captured[i])[0] == row(i)[2]


def test_nothing_is_kept_alive(probe):
    def function():
        return probe.capture()

    before = sys.getrefcount(function.__code__), sys.getrefcount(function.__name__)
    for _ in range(1000):
        function()
    after = sys.getrefcount(function.__code__), sys.getrefcount(function.__name__)
    assert after == before


def test_full_tables_are_told(probe):
    assert probe.capture_full(1) == (0, STACK_LOST)


# ---- the last walk remembered ----


def churn_tree(random, probe, results, depth):
    """Calls on at random, with code that dies and comes back at the same address."""
    for _ in range(random.randrange(1, 4)):
        kind = random.randrange(6)
        if depth == 0 or kind == 0:
            results.append((probe.capture_both(), expected()))
        elif kind == 1:
            churn_tree(random, probe, results, depth - 1)
        elif kind == 2:
            list(churn_tree(random, probe, results, depth - 1) for _ in "ab")
        elif kind == 3:
            Called(random.randrange(3))(
                lambda: churn_tree(random, probe, results, depth - 1)
            )
        else:
            name = random.choice("fg")
            lines = random.randrange(3)
            space = {}
            source = f"def {name}(c):\n" + "\n" * lines + "  return c()\n"
            exec(compile(source, random.choice(["<a>", "<b>"]), "exec"), space)
            space[name](lambda: churn_tree(random, probe, results, depth - 1))


class Called:
    def __init__(self, number):
        self.number = number

    def __call__(self, function):
        return function()


@pytest.mark.parametrize("seed", range(8))
def test_a_remembered_walk_gives_the_stack_that_a_fresh_one_gives(probe, seed):
    assert probe.follow(Called.__call__.__code__)
    results = []
    random = Random(seed)
    for _ in range(30):
        churn_tree(random, probe, results, 6)
    assert len(results) > 300
    assert len({recalled for (recalled, _, _), _ in results}) > 100
    for (recalled, fresh, flags), _ in results:
        assert recalled == fresh != 0 and flags == 0
    if sys.version_info >= (3, 12):  # before, a code has no version
        for (recalled, _, _), want in results[:: len(results) // 50]:
            assert probe.resolve(recalled) == want


def test_threads_beyond_those_with_a_place_of_their_own(probe):
    """More at once than there are places, each comparing with its own last walk."""
    barrier = threading.Barrier(200)
    wrong = []

    def run(number):
        barrier.wait()
        for depth in range(5):
            recalled, fresh, flags = recurse(number % 7 + depth, probe.capture_both)
            names = [name for name, _, _ in probe.resolve(recalled)]
            if recalled != fresh or names.count("recurse") != number % 7 + depth + 1:
                wrong.append((number, names))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- the object that a frame works on ----


class Layer:
    def __call__(self, function):
        return self.forward(function)

    def forward(self, function):
        return function()


def modules_of(probe, captured):
    return [module for _, module in probe.modules(captured[0]) if module]


def test_a_followed_frame_carries_its_object(probe):
    assert probe.follow(Layer.__call__.__code__)
    outer, inner = Layer(), Layer()
    captured = outer(lambda: inner(probe.capture))
    assert modules_of(probe, captured) == ["<Layer>", "<Layer>"]
    named = [name for name, module in probe.modules(captured[0]) if module]
    assert named == ["__call__", "__call__"]
    assert probe.name(outer, "block") == probe.name(inner, "block.0") == 0
    # Names reach stacks seen before, and the latest wins.
    assert modules_of(probe, captured) == ["block.0", "block"]
    assert probe.name(inner, "block.0.fc") == 0
    assert modules_of(probe, captured) == ["block.0.fc", "block"]
    again = outer(lambda: inner(probe.capture_released))
    assert modules_of(probe, again) == ["block.0.fc", "block"]
    # The object tells stacks apart that are equal otherwise.
    first, second = [layer(probe.capture) for layer in (outer, inner)]
    assert first[0] != second[0]


def test_an_object_at_the_address_of_a_forgotten_one_is_another(probe):
    assert probe.follow(Layer.__call__.__code__)
    layer = Layer()

    def call():
        return layer(probe.capture)

    before = call()
    probe.name(layer, "first")
    probe.forget(layer)
    after = call()
    probe.name(layer, "second")
    assert modules_of(probe, before) == ["first"]
    assert modules_of(probe, after) == ["second"]
    assert modules_of(probe, call()) == ["second"]


def test_an_object_that_changes_its_class_is_another(probe):
    class Other(Layer):
        pass

    assert probe.follow(Layer.__call__.__code__)
    layer = Layer()
    probe.forget(layer)  # an earlier test may have named what lived here
    seen = []
    for kind in (Layer, Other):
        layer.__class__ = kind
        seen.append(modules_of(probe, layer(probe.capture)))
    assert seen == [["<Layer>"], ["<Other>"]]


def test_generators_and_coroutines_carry_their_object(probe):
    class Stream:
        def __call__(self):
            yield probe.capture()

    assert probe.follow(Stream.__call__.__code__)
    stream = Stream()
    captured = list(stream())
    assert modules_of(probe, captured[0]) == ["<Stream>"]


def test_a_first_argument_that_is_not_in_the_frame_is_not_followed(probe):
    def cell(self):
        return lambda: self

    def nothing():
        pass

    def rest(*args):
        pass

    for function in (cell, nothing, rest):
        assert not probe.follow(function.__code__)

    def gone(self):
        del self
        return probe.capture()

    assert probe.follow(gone.__code__)
    assert modules_of(probe, gone(Layer())) == []


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


# ---- line tables ----


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_consts"):
            yield from code_objects(constant)


def line_at_each_offset(code):
    """By co_lines(), which is not how PyCode_Addr2Line finds them."""
    lines = [-1] * len(code.co_code)
    for start, end, line in code.co_lines():
        for offset in range(start, end):
            lines[offset] = -1 if line is None else line
    return lines


def test_lines_of_the_standard_library(probe):
    """Each instruction of a third of the standard library's top folder."""
    folder = os.path.dirname(os.__file__)
    files = sorted(glob.glob(f"{folder}/*.py"))[::3] + glob.glob(f"{folder}/asyncio/*")
    minor = sys.version_info.minor
    checked = 0
    for path in files:
        if not path.endswith(".py"):
            continue
        for code in code_objects(compile(Path(path).read_bytes(), path, "exec")):
            lines = line_at_each_offset(code)
            table, first = code.co_linetable, code.co_firstlineno
            for offset in range(0, len(code.co_code), 2):
                got = probe.line(table, first, minor, offset)
                assert got == lines[offset], (path, code.co_name, offset)
                assert got == probe.python_line(code, offset)
                checked += 1
            assert probe.line(table, first, minor, -2) == first
    assert checked > 100_000


def test_lines_of_unusual_code(probe):
    far = "def f():\n  return (\n" + "\n" * 5000 + "    g())\n"
    tangled = "x = [\n  i\n  for i in (\n    1, 2)\n  if i\n]\ntry:\n  y\nexcept E: z\n"
    for source in (far, tangled, "", "\n" * 70000 + "x\n"):
        for code in code_objects(compile(source, "<test>", "exec")):
            for offset, line in enumerate(line_at_each_offset(code)):
                got = probe.line(
                    code.co_linetable,
                    code.co_firstlineno,
                    sys.version_info.minor,
                    offset,
                )
                assert got == line
