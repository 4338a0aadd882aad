"""The walk that a thread remembers, and code objects that come and go: a stack is never
another's."""

import os
import sys
import threading
from random import Random

import pytest
from stackprobe import expected, recurse

NO_PYTHON, STACK_LOST = 4, 8  # ML_EVENT_*


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
