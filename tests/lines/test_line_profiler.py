"""Line tables on the scripted source: figures worked out by hand from what is emitted."""

import functools
import sys
import warnings
from pathlib import Path

import pytest
from scripted_lines import MIB, profiler_of, rows_of, table

from memlab._lines.lines import codes_named

# ---- Lines, loops, calls ----


def test_what_happens_between_two_lines_belongs_to_the_first(m):
    def work():  # def
        kept = m.alloc(2)  # two
        m.spike(5)  # five
        x = 1 + 1  # nothing
        m.free(kept)  # free
        return x  # end

    with profiler_of(work) as profiler:
        work()
    assert table(profiler, work) == {
        "def": 0, "two": 2, "five": 7, "nothing": 2, "free": 2, "end": 0,
    }  # fmt: skip
    assert table(profiler, work, "active_bytes.all.current") == {
        "def": 0, "two": 2, "five": 2, "nothing": 2, "free": 0, "end": 0,
    }  # fmt: skip
    assert table(profiler, work, "active_bytes.all.allocated") == {
        "def": 0, "two": 2, "five": 5, "nothing": 0, "free": 0, "end": 0,
    }  # fmt: skip
    assert table(profiler, work, "active_bytes.all.freed") == {
        "def": 0, "two": 0, "five": 5, "nothing": 0, "free": 2, "end": 0,
    }  # fmt: skip
    assert table(profiler, work, "delta") == {
        "def": 0, "two": 2, "five": 0, "nothing": 0, "free": -2, "end": 0,
    }  # fmt: skip
    assert set(table(profiler, work, "calls").values()) == {1}


def test_of_several_runs_of_a_line_the_largest_counts(m):
    def work(sizes):  # def
        for size in sizes:  # for
            m.spike(size)  # spike

    with profiler_of(work) as profiler:
        work([3, 7, 5])
        work([4])
    assert table(profiler, work) == {"def": 0, "for": 0, "spike": 7}
    assert table(profiler, work, "calls") == {"def": 2, "for": 6, "spike": 4}
    assert table(profiler, work, "active_bytes.all.allocated")["spike"] == 7


def test_growth_is_summed_over_the_runs(m):
    def work():  # def
        blocks = []  # list
        for _ in range(3):  # for
            blocks.append(m.alloc(2))  # append
        for block in blocks:  # again
            m.free(block)  # free

    with profiler_of(work) as profiler:
        work()
    assert table(profiler, work, "delta") == {
        "def": 0, "list": 0, "for": 0, "append": 6, "again": 0, "free": -6,
    }  # fmt: skip
    assert table(profiler, work)["append"] == 6
    assert table(profiler, work)["free"] == 6
    assert table(profiler, work, "active_bytes.all.freed")["free"] == 2


def test_one_line_with_two_statements_and_one_statement_over_lines(m):
    def work(flag):  # def
        # fmt: off
        if flag: m.spike(3)  # if  # noqa: E701
        m.spike(  # call
            sum(  # sum
                [1, 4]  # list
            )
        )
        while flag: flag = m.spike(2)  # while  # noqa: E701
        # fmt: on

    with profiler_of(work) as profiler:
        work(True)
    peaks = table(profiler, work)
    assert (peaks["if"], peaks["while"]) == (3, 2)
    # Which line of a statement an event comes from is the compiler's choice.
    assert max(peaks[name] for name in ("call", "sum", "list") if name in peaks) == 5


def test_a_function_in_one_line_has_one_row_and_one_call(m):
    # fmt: off
    def work(): m.spike(3)  # one
    # fmt: on

    spike = make_lambda(m)

    with profiler_of(work, spike) as profiler:
        work()
        work()
        spike()
    assert table(profiler, work) == {"one": 3}
    assert table(profiler, work, "calls") == {"one": 2}
    assert table(profiler, spike) == {"lambda": 4}
    assert table(profiler, spike, "calls") == {"lambda": 1}


def make_lambda(m):
    return lambda: m.spike(4)  # lambda


def test_lines_may_come_in_any_order(m):
    def work():  # def
        i = 0  # zero
        while True:  # while
            i += 1  # add
            if i == 2:  # if
                m.spike(3)  # three
                continue  # continue
            if i == 4:  # four
                break  # break
            m.spike(i)  # spike

    with profiler_of(work) as profiler:
        work()
    peaks = table(profiler, work)
    assert (peaks["three"], peaks["spike"]) == (3, 3)
    assert {peaks[name] for name in peaks if name not in ("three", "spike")} == {0}


def test_comprehensions_and_inner_functions_belong_to_the_line(m):
    def work():  # def
        _ = [m.spike(i) for i in (1, 3)]  # comprehension
        _ = sum(m.spike(i) or 0 for i in (2, 5))  # generator

        def inner():  # inner
            m.spike(7)

        inner()  # call

    with profiler_of(work) as profiler:
        work()
    assert table(profiler, work) == {
        "def": 0, "comprehension": 3, "generator": 5, "inner": 0, "call": 7,
    }  # fmt: skip


def test_code_without_a_file(m):
    space = {"m": m}
    exec("def work():\n    m.spike(3)\n", space)
    with profiler_of(space["work"]) as profiler:
        space["work"]()
    assert [(row[0], row[3][0]) for row in rows_of(profiler)] == [(1, 0), (2, 3 * MIB)]
    assert "3.00M" in str(profiler.display(columns="active_bytes.all.peak"))


def test_a_script_that_does_not_print_its_tables_is_told(m, capsys):
    def work():
        m.spike(3)

    with profiler_of(work) as profiler:
        work()
    with pytest.warns(RuntimeWarning, match=r"call print_stats\(\), or print\(") as told:
        profiler.display()
    assert [each.filename for each in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profiler.print_stats()
        print(profiler.display())
        profiler_of(work).display()  # no line ran
    assert "Exception ignored" not in capsys.readouterr().err


def test_a_code_object_that_is_executed(m):
    code = compile("m.spike(2)\nm.spike(5)\n", "<text>", "exec")
    with profiler_of(code) as profiler:
        exec(code, {"m": m})
    assert [(row[0], row[3][0]) for row in rows_of(profiler)][-2:] == [
        (1, 2 * MIB),
        (2, 5 * MIB),
    ]


# ---- Calls of profiled functions ----


def test_lines_of_a_callee_are_in_the_line_that_calls(m):
    def callee():  # def
        kept = m.alloc(3)  # three
        m.spike(4)  # four
        m.free(kept)  # free

    def caller():  # def
        base = m.alloc(1)  # one
        callee()  # call
        m.free(base)  # free

    with profiler_of(caller, callee) as profiler:
        caller()
    assert table(profiler, callee) == {"def": 1, "three": 4, "four": 8, "free": 4}
    assert table(profiler, caller) == {"def": 0, "one": 1, "call": 8, "free": 1}
    column = "active_bytes.all.allocated"
    assert table(profiler, caller, column) == {"def": 0, "one": 1, "call": 7, "free": 0}
    column = "active_bytes.all.freed"
    assert table(profiler, caller, column) == {"def": 0, "one": 0, "call": 7, "free": 1}


def test_recursion_has_a_frame_each(m):
    def work(depth):  # def
        kept = m.alloc(1)  # alloc
        if depth:  # if
            work(depth - 1)  # call
        m.spike(2)  # spike
        m.free(kept)  # free

    with profiler_of(work) as profiler:
        work(2)
    assert table(profiler, work) == {
        "def": 2, "alloc": 3, "if": 3, "call": 5, "spike": 5, "free": 3,
    }  # fmt: skip
    assert table(profiler, work, "calls") == {
        "def": 3, "alloc": 3, "if": 3, "call": 2, "spike": 3, "free": 3,
    }  # fmt: skip
    # The outermost call has all that the two inner ones do: 2 * (1 + 2).
    assert table(profiler, work, "active_bytes.all.allocated")["call"] == 6
    assert table(profiler, work, "delta")["call"] == 0


def test_functions_that_call_each_other(m):
    def even(n):  # def
        m.spike(n + 1)  # spike
        return n == 0 or odd(n - 1)  # call

    def odd(n):  # def
        m.spike(11 + n)  # spike
        return n != 0 and even(n - 1)  # call

    with profiler_of(even, odd) as profiler:
        assert even(4)
    assert table(profiler, even) == {"def": 0, "spike": 5, "call": 14}
    assert table(profiler, odd) == {"def": 0, "spike": 14, "call": 12}


def test_an_exception_through_several_profiled_frames(m):
    def inner():  # def
        m.spike(3)  # spike
        raise KeyError  # raise

    def middle():  # def
        m.spike(1)  # one
        inner()  # call
        m.spike(9)  # never

    def outer():  # def
        try:  # try
            middle()  # call
        except KeyError:  # except
            m.spike(2)  # two
        finally:
            m.spike(4)  # four
        m.spike(5)  # five

    with profiler_of(inner, middle, outer) as profiler:
        outer()
    assert table(profiler, inner) == {"def": 0, "spike": 3, "raise": 0}
    assert table(profiler, middle) == {"def": 0, "one": 1, "call": 3}
    assert table(profiler, outer) == {
        "def": 0, "try": 0, "call": 3, "except": 0, "two": 2, "four": 4, "five": 5,
    }  # fmt: skip


def test_an_exception_that_nobody_catches_ends_the_call(m):
    def inner():  # def
        raise KeyError  # raise

    def after():  # def
        m.spike(2)  # spike

    with profiler_of(inner, after) as profiler:
        with pytest.raises(KeyError):
            inner()
        m.spike(9)
        after()
    assert table(profiler, inner) == {"def": 0, "raise": 0}
    assert table(profiler, after) == {"def": 0, "spike": 2}


def test_a_with_statement_has_what_its_methods_do(m):
    class Resource:
        def __enter__(self):
            self.block = m.alloc(3)

        def __exit__(self, *error):
            m.spike(6)
            m.free(self.block)

    def work():  # def
        with Resource():  # with
            m.spike(1)  # body
        m.spike(2)  # after

    with profiler_of(work) as profiler:
        work()
    assert table(profiler, work) == {"def": 0, "with": 9, "body": 4, "after": 2}


# ---- Which code ----


def test_twins_are_told_apart(m):
    space, other = {"m": m}, {"m": m}
    text = "def work(size):\n    m.spike(size)\n"
    exec(compile(text, "<twin>", "exec"), space)
    exec(compile(text, "<twin>", "exec"), other)
    first, second = space["work"], other["work"]
    assert first.__code__ == second.__code__
    assert first.__code__ is not second.__code__
    with profiler_of(first) as profiler:
        second(9)
        first(2)
    assert [row[3][0] for row in rows_of(profiler)] == [0, 2 * MIB]
    with profiler_of(first, second) as profiler:
        second(9)
        first(2)
    peaks = [profiler._rows(i, ("active_bytes.all.peak",))[1][3][0] for i in (0, 1)]
    assert peaks == [2 * MIB, 9 * MIB]
    assert str(profiler.display()).count("## work (<twin>:1)\n") == 2


def test_stacked_decorators_and_all_that_wraps_a_function(m):
    def wrap(function):
        @functools.wraps(function)
        def inner(*args):
            m.spike(30)
            return function(*args)

        return inner

    def plain():  # def
        m.spike(1)  # spike

    class Class:
        def method(self):  # def
            m.spike(2)  # spike

        @classmethod
        def on_class(cls):
            m.spike(3)  # spike

        @staticmethod
        @wrap
        def static():
            m.spike(4)  # spike

        @property
        def value(self):
            m.spike(5)  # spike

        @functools.cached_property
        def cached(self):
            m.spike(6)  # spike

        partial = functools.partialmethod(method)

    bound = Class().method
    wrapped = wrap(wrap(functools.partial(plain)))
    members = Class.__dict__
    functions = [members[name] for name in ("on_class", "static", "value", "cached")]
    with profiler_of(wrapped, bound, *functions) as profiler:
        instance = Class()
        wrapped(), instance.partial(), instance.on_class(), instance.static()
        instance.value, instance.cached  # noqa: B018
    peaks = [table(profiler, f)["spike"] for f in (plain, Class.method, *functions)]
    assert peaks == [1, 2, 3, 4, 5, 6]
    assert "Class.method" in str(profiler.display(Class.method))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 695 is of Python 3.12")
def test_names_of_what_is_generic():
    code = compile(
        "def f[T: int](x: T):\n"
        "    def inner[S](y: S): pass\n"
        "class C[T]:\n"
        "    def plain(self): pass\n"
        "    def method[S](self):\n"
        "        class D: \n"
        "            def deep(self): pass\n",
        "<generic>",
        "exec",
    )
    for name in (
        "f",
        "f.<locals>.inner",
        "C.plain",
        "C.method",
        "C.method.<locals>.D.deep",
    ):
        [found] = codes_named(code, name)
        assert found.co_qualname == name


class Awkward:
    """Has every attribute, none of them of use, as mocks and proxies do."""

    def __getattr__(self, name):
        return Awkward()


class Raising:
    def __getattr__(self, name):
        raise RuntimeError(name)


def in_a_circle():
    one, two = functools.partial(len), functools.partial(len)
    one.__wrapped__, two.__wrapped__ = two, one
    return one


@pytest.mark.parametrize(
    "thing",
    [len, 7, "text", object(), int, Awkward, Awkward(), Raising(), in_a_circle()],
    ids=lambda thing: type(thing).__name__,
)
def test_what_has_no_code_is_said_and_left(thing):
    with pytest.warns(
        UserWarning, match="Could not extract a code object for the object"
    ) as told:
        profiler = profiler_of(thing)
    assert Path(told[0].filename).name == "scripted_lines.py"  # which made it
    assert str(profiler.display()) == "No data collected\n"


def test_a_wrapped_function_is_found_beneath_an_object(m):
    class Callable:
        def __init__(self, function):
            functools.update_wrapper(self, function)

    def work():  # def
        m.spike(3)  # spike

    with profiler_of(Callable(work)) as profiler:
        work()
    assert table(profiler, work) == {"def": 0, "spike": 3}
