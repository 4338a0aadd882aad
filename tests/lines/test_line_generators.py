"""Line tables of generators and coroutines: what happens between two items is whose it is."""

import asyncio

import pytest
from scripted_lines import profiler_of, run_in_thread, table

# ---- Generators ----


def test_what_the_consumer_does_between_two_items_is_the_consumers(m):
    def items():  # def
        m.spike(1)  # first
        yield 1  # yield
        m.spike(2)  # second
        yield 2  # last

    def consume():  # def
        for item in items():  # for
            m.spike(10 * item)  # body

    with profiler_of(items, consume) as profiler:
        consume()
    assert table(profiler, items) == {
        "def": 0, "first": 1, "yield": 0, "second": 2, "last": 0,
    }  # fmt: skip
    assert table(profiler, consume) == {"def": 0, "for": 2, "body": 20}
    assert table(profiler, items, "calls") == {
        "def": 1, "first": 1, "yield": 1, "second": 1, "last": 1,
    }  # fmt: skip


def test_a_generator_without_a_profiled_consumer(m):
    def items():  # def
        kept = m.alloc(1)  # one
        yield m.spike(2)  # yield
        m.free(kept)  # free

    with profiler_of(items) as profiler:
        for _ in items():
            m.spike(50)
    assert table(profiler, items) == {"def": 0, "one": 1, "yield": 3, "free": 1}


def test_several_of_one_generator_function_interleaved(m):
    def items(size):  # def
        m.spike(size)  # first
        yield  # yield
        m.spike(2 * size)  # second

    def consume():  # def
        for _ in zip(items(1), items(4)):  # zip
            m.spike(30)  # body

    with profiler_of(items, consume) as profiler:
        consume()
    # zip() asks the first for an item more, which ends it, and does not ask the second.
    assert table(profiler, items) == {"def": 0, "first": 4, "yield": 0, "second": 2}
    assert table(profiler, consume) == {"def": 0, "zip": 4, "body": 30}


def test_yield_from(m):
    def inner():  # def
        m.spike(1)  # one
        yield  # yield
        m.spike(5)  # five
        return 7  # return

    def outer():  # def
        got = yield from inner()  # from
        m.spike(got)  # got

    with profiler_of(inner, outer) as profiler:
        for _ in outer():
            m.spike(40)
    assert table(profiler, inner) == {
        "def": 0, "one": 1, "yield": 0, "five": 5, "return": 0,
    }  # fmt: skip
    assert table(profiler, outer) == {"def": 0, "from": 5, "got": 7}


def test_exceptions_thrown_into_a_generator(m):
    def items():  # def
        try:  # try
            yield 1  # yield
        except KeyError:  # except
            m.spike(3)  # three
            yield 2  # again
        m.spike(4)  # four

    with profiler_of(items) as profiler:
        generator = items()
        next(generator)
        m.spike(50)
        assert generator.throw(KeyError) == 2
        m.spike(60)
        with pytest.raises(StopIteration):
            next(generator)
        m.spike(70)
        unstarted = items()
        with pytest.raises(ValueError):
            unstarted.throw(ValueError)
        m.spike(80)
        passing = items()
        next(passing)
        with pytest.raises(ValueError):
            passing.throw(ValueError)
        m.spike(90)
    peaks = table(profiler, items)
    assert (peaks.pop("three"), peaks.pop("four")) == (3, 4)
    assert set(peaks.values()) == {0}


def test_a_throw_that_goes_down_through_yield_from(m):
    def inner():  # def
        try:  # try
            yield  # yield
        except KeyError:  # except
            m.spike(3)  # three

    def outer():  # def
        yield from inner()  # from
        m.spike(5)  # five
        yield  # yield

    def consume():  # def
        generator = outer()  # make
        next(generator)  # next
        m.spike(20)  # body
        generator.throw(KeyError)  # throw
        m.spike(30)  # after

    with profiler_of(inner, outer, consume) as profiler:
        consume()
    assert table(profiler, inner)["three"] == 3
    assert table(profiler, outer) == {"def": 0, "from": 0, "five": 5, "yield": 0} or (
        table(profiler, outer) == {"def": 0, "from": 3, "five": 5, "yield": 0}
    )
    assert table(profiler, consume) == {
        "def": 0, "make": 0, "next": 0, "body": 20, "throw": 5, "after": 30,
    }  # fmt: skip


@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_generator_that_is_left_half_way(m, end):
    def items():  # def
        try:  # try
            yield 1  # yield
        finally:
            m.spike(6)  # finally

    def plain():  # def
        yield  # yield

    def consume():  # def
        generator, other = items(), plain()  # make
        next(generator)  # next
        next(other)  # other
        if end == "close":  # if
            generator.close()  # end
            other.close()  # closed
        else:
            del generator  # end
            del other  # closed
        m.spike(20)  # after

    with profiler_of(items, plain, consume) as profiler:
        consume()
        m.spike(100)
    assert table(profiler, items) == {"def": 0, "try": 0, "yield": 0, "finally": 6}
    assert table(profiler, plain) == {"def": 0, "yield": 0}
    assert table(profiler, consume) == {
        "def": 0, "make": 0, "next": 0, "other": 0, "if": 0, "end": 6, "closed": 0,
        "after": 20,
    }  # fmt: skip


def test_a_generator_that_goes_on_on_another_thread(m):
    def items():  # def
        m.spike(1)  # one
        yield  # yield
        m.spike(2)  # two
        yield  # again

    with profiler_of(items) as profiler:
        generator = items()
        next(generator)
        run_in_thread(next, generator)
        m.spike(50)
    assert table(profiler, items) == {
        "def": 0,
        "one": 1,
        "yield": 0,
        "two": 2,
        "again": 0,
    }


# ---- Coroutines ----


def test_two_tasks_interleaved(m):
    async def task(size, mine, others):  # def
        kept = m.alloc(size)  # alloc
        others.set()  # set
        await mine.wait()  # wait
        m.spike(size)  # spike
        m.free(kept)  # free

    async def main():
        first, second = asyncio.Event(), asyncio.Event()
        await asyncio.gather(task(1, first, second), task(10, second, first))

    with profiler_of(task) as profiler:
        asyncio.run(main())
    # The first waits at 1 MiB, the second takes 10 more and goes right on; so the second
    # is done when the first goes on.
    assert table(profiler, task) == {
        "def": 1, "alloc": 11, "set": 11, "wait": 11, "spike": 21, "free": 11,
    }  # fmt: skip
    assert table(profiler, task, "active_bytes.all.allocated") == {
        "def": 0, "alloc": 10, "set": 0, "wait": 0, "spike": 10, "free": 0,
    }  # fmt: skip


def test_what_is_awaited_belongs_to_the_line_that_awaits(m):
    async def inner():  # def
        m.spike(2)  # two
        await asyncio.sleep(0)  # sleep
        m.spike(6)  # six

    async def outer():  # def
        await inner()  # await
        m.spike(1)  # one

    async def noise():
        for _ in range(3):
            m.spike(50)
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(outer(), noise())

    with profiler_of(inner, outer) as profiler:
        asyncio.run(main())
    assert table(profiler, inner) == {"def": 0, "two": 2, "sleep": 0, "six": 6}
    assert table(profiler, outer) == {"def": 0, "await": 6, "one": 1}


def test_asynchronous_generators_and_contexts(m):
    class Context:
        async def __aenter__(self):
            m.spike(3)
            await asyncio.sleep(0)

        async def __aexit__(self, *error):
            await asyncio.sleep(0)
            m.spike(4)

    async def items():  # def
        for i in (1, 2):  # for
            m.spike(i)  # spike
            yield i  # yield

    async def main():  # def
        async for i in items():  # for
            m.spike(10 * i)  # body
        async with Context():  # with
            m.spike(7)  # seven
        _ = [i async for i in items()]  # comprehension

    with profiler_of(items, main) as profiler:
        asyncio.run(main())
    assert table(profiler, items) == {"def": 0, "for": 0, "spike": 2, "yield": 0}
    assert table(profiler, main) == {
        "def": 0, "for": 2, "body": 20, "with": 4, "seven": 7, "comprehension": 2,
    }  # fmt: skip


def test_a_task_that_is_cancelled(m):
    async def work():  # def
        try:  # try
            await asyncio.sleep(1000)  # sleep
        finally:
            m.spike(5)  # finally

    async def main():
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        m.spike(50)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        m.spike(60)

    with profiler_of(work) as profiler:
        asyncio.run(main())
    assert table(profiler, work) == {"def": 0, "try": 0, "sleep": 0, "finally": 5}
