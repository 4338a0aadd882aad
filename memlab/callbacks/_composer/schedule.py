"""Schedules of Composer's Profiler, and their actions."""

from __future__ import annotations

import enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class ProfilerAction(enum.Enum):
    """A profiler's action during a batch; equal to Composer's action of that name."""

    SKIP = "skip"
    WARMUP = "warmup"
    ACTIVE = "active"
    ACTIVE_AND_SAVE = "active_and_save"

    def __eq__(self, other: object) -> bool:
        return self.value == getattr(other, "value", other)

    def __hash__(self) -> int:
        return hash(self.value)


def action_of(action: object) -> ProfilerAction:
    """The action in a schedule's result, memlab's or Composer's.

    Raises ValueError for anything else.
    """
    try:
        return ProfilerAction(getattr(action, "value", action))
    except ValueError:
        raise ValueError(
            f"unexpected action: {action!r}; a schedule returns a ProfilerAction"
        ) from None


def check_count(name: str, value: object, least: int) -> None:
    """Raises TypeError or ValueError, with NAME in its text, unless VALUE is an integer
    of at least LEAST.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def cyclic_schedule(
    skip_first: int = 0,
    wait: int = 0,
    warmup: int = 1,
    active: int = 4,
    repeat: int = 1,
) -> Callable[[Any], ProfilerAction]:
    """A schedule that records some batches of every epoch, for Profiler(schedule=...).

    All but the last are numbers of batches.  skip_first: not profiled at an epoch's
    start.  After a resume, each epoch skips as many more as were trained of the epoch
    in which the run was stopped.  Then cycles follow each other.  wait: not profiled.
    warmup: profiled and dropped.  active: recorded, at least 1; the last of them, or of
    the epoch, ends the cycle and saves it.  repeat: cycles in an epoch; 0: as many as
    fit.

    Returns a function of Composer's state.  Raises TypeError or ValueError for an
    invalid number.
    """
    check_count("skip_first", skip_first, 0)
    check_count("wait", wait, 0)
    check_count("warmup", warmup, 0)
    check_count("active", active, 1)
    check_count("repeat", repeat, 0)
    cycle = wait + warmup + active

    def schedule(state: Any) -> ProfilerAction:
        batch = int(state.timestamp.batch_in_epoch)
        resumed = 0 if state.profiler is None else state.profiler.resumption_batch_idx
        number = batch - skip_first - resumed
        if number < 0 or (repeat and number >= repeat * cycle):
            return ProfilerAction.SKIP
        place = number % cycle
        if place < wait:
            return ProfilerAction.SKIP
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        batches = state.dataloader_len
        last_of_epoch = batches is not None and batch == int(batches) - 1
        if place == cycle - 1 or last_of_epoch:
            return ProfilerAction.ACTIVE_AND_SAVE
        return ProfilerAction.ACTIVE

    return schedule
