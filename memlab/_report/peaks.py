"""Live memory on a device at the peak or another instant, and the devices.

Asks the C core, which has all figures.
"""

from memlab._errors import Error
from memlab._report import instant as _instant
from memlab._report import stack_lines
from memlab._text import wording
from memlab._text.wording import share, size

CATEGORIES = (
    "parameter",
    "buffer",
    "gradient",
    "optimizer_state",
    "activation",
    "temporary",
    "input",
    "other",
    "workspace",
    "communication",
    "before_recording",
    "unknown",
)
"""The categories of memory, as keys of by_category; docs/REPORT.md says what each is."""


def nothing(recording) -> str:
    """The report of a RECORDING without devices."""
    file = recording.file
    if file is not None and (file["gaps"] or file["damaged_chunks"]):
        return "The file has lost every event: what was allocated cannot be told."
    return "No memory was allocated while recording."


def devices(recording) -> list[int]:
    """Indexes of the devices of RECORDING with events or memory."""
    counts = [recording.counts(i) for i in range(recording.device_count)]
    return [i for i, has in enumerate(counts) if has["events"] or has["segments"]]


def peak(recording, device=None, at="peak") -> dict:
    """The answer for one device at an instant, as for instant.parse(): DEVICE, or the
    device with the most then.
    """
    instant = _instant.parse(at)
    if device is not None:
        return answer_at(recording, device, instant)
    answers = [answer_at(recording, i, instant) for i in devices(recording)]
    if not recording.device_count:
        raise Error(nothing(recording))
    if not answers:
        return recording.peak(0)
    return max(answers, key=lambda answer: answer["peak"]["allocated_bytes"])


def lines(recording, device=None, functions=()) -> list[dict]:
    """The tables of the lines of FUNCTIONS, or of those with the most bytes, for one
    device.
    """
    answer = peak(recording, device)
    device = answer["device"]
    tables = stack_lines.tables(recording, {device: answer}, functions)
    return [table.answer() for table in tables[device]]


def answer_at(recording, device, instant) -> dict:
    """Live memory on DEVICE at INSTANT, of instant.py.  Raises memlab.Error if the
    recording lacks it.
    """
    return recording.peak(device, _instant.event(recording, device, instant))


def choose_devices(recording, number=None, rank=None) -> list[int]:
    """Indexes of the devices with events or memory, with the NUMBER in their process
    and of the RANK; None: any.  Raises memlab.Error, with the existing ones, if there
    is none.
    """
    found = devices(recording)
    numbers = {i: i for i in range(recording.device_count)}
    ranks = {}
    for item in recording.ranks():
        for of in item["devices"]:
            numbers[of["device"]] = of["number"]
            ranks[of["device"]] = item["rank"]
    if rank is not None:
        there = sorted({ranks[i] for i in found if ranks.get(i) is not None})
        found = [i for i in found if ranks.get(i) == rank]
        if not found:
            has = f"it has {wording.numbers(there)}" if there else "it does not say whose it is"
            raise Error(f"the recording has no memory of rank {rank}: {has}")
    if number is not None:
        there = sorted({numbers[i] for i in found})
        found = [i for i in found if numbers[i] == number]
        if not found:
            has = wording.numbers(there) or "none"
            raise Error(f"the recording has no memory of device {number}: it has {has}")
    return found


def categories(answer) -> list[tuple[int, str]]:
    """(bytes, category) of ANSWER, largest first; unknown bytes by reason."""
    parts = [
        (count, category.replace("_", " "))
        for category, count in answer["by_category"].items()
        if category != "unknown"
    ]
    whys = answer["unknown_because"].items()
    parts += [(count, f"unknown: {why}" if why else "unknown") for why, count in whys]
    unsaid = answer["by_category"]["unknown"] - sum(count for _, count in whys)
    parts.append((unsaid, "unknown"))
    return sorted((part for part in parts if part[0]), key=lambda part: -part[0])


def category_rows(answer, whole):
    """The categories of ANSWER with their shares of WHOLE bytes."""
    return [(size(count), share(count, whole), name) for count, name in categories(answer)]
