"""The answer of `memlab fit` in words."""

from memlab._fit.run import BYTES
from memlab._text import wording

# Where the context and the libraries that the phantom device takes were measured.
_MEASURED_ON, _MEASURED_WITH = "NVIDIA H200", "2.11"

_CATEGORIES_SHOWN = 6
_LINES_SHOWN = 5
_ROWS_NAMED = 4


def text(answer, start=None) -> str:
    """ANSWER of memlab.fit as text; paths are relative to the folder START."""
    parts = []
    if answer["vary"] is not None:
        parts.append("\n".join(_tried(answer["vary"])))
    parts.append(_headline(answer))
    if answer["out_of_memory"] is not None:
        parts.append(_where(answer["out_of_memory"], start))
    several = len(answer["devices"]) > 1
    shown = answer["devices"]
    if answer["world"] is not None:
        parts.append("\n".join(_ranks(answer)))
        if answer["world"]["rows"] is not None:
            parts.append("\n".join(_rows(answer["world"])))
        shown = [item for item in shown if item["rank"] == answer["world"]["decides"]]
    parts += ["\n".join(_device(item, several, start)) for item in shown]
    parts.append("\n".join(_notes(answer)))
    return "\n\n".join(part for part in parts if part) + "\n"


def table(answer):
    """Lines of the table of ANSWER of memlab.sweep."""
    rows = answer["rows"]
    names = [*rows[0]["settings"], *([rows[0]["vary"]] if rows[0]["vary"] else [])]
    priced = any(row["price"] is not None for row in rows)
    cells = [["GPU", *map(wording.escape, names), "", "peak", "in all", "left"]]
    ranged = any(row["total_range_bytes"] for row in rows)
    if ranged:
        cells[0].insert(-1, "none to all")
    if priced:
        cells[0].append("an hour")
    for row in rows:
        values = [wording.escape(value) for value in row["settings"].values()]
        if row["vary"] is not None:
            values.append("-" if row["largest"] is None else str(row["largest"]))
        how = "fits" if row["fits"] else "failed" if row["error"] else "does not fit"
        sizes = [row["allocated_peak_bytes"], row["total_bytes"], row["headroom_bytes"]]
        cells.append(
            [row["gpu"], *values, how, *("" if n is None else wording.size(n) for n in sizes)]
        )
        if ranged:
            cells[-1].insert(-1, _between(row["total_range_bytes"]))
        if priced:
            cells[-1].append("" if row["price"] is None else f"{row['price']:,.2f}")
    wide = [max(map(len, column)) for column in zip(*cells)]
    for line in cells:
        yield "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, wide))
        ).rstrip()
    fitting = [row for row in rows if row["fits"]]
    if not fitting:
        yield "Nothing fits."
    if rows[0]["vary"] is not None:
        most = any(row["largest"] == row["highest"] for row in rows)
        more = f", or {rows[0]['highest']}, the highest of the range" * most
        yield f"{wording.escape(rows[0]['vary'])} is the largest value that fits{more}."
    if ranged:
        yield "None to all: in all, if none or all of the rows for experts come to a rank."
        full = [row for row in fitting if _most(row) > row["capacity_bytes"]]
        if full:
            yield f"If all come to one rank, it does not fit: {_names(full)}."
    if answer["cheapest"] is not None:
        yield f"Cheapest that fits: {row_name(rows[answer['cheapest']])}."
    for row in rows:
        if row["error"] is not None:
            yield f"{row_name(row)} failed for another reason than memory: {row['error']}"
            break
    followed = answer["followed"]
    more = f"; {followed} followed from a GPU of the same chip with more memory" * bool(followed)
    yield f"Runs: {answer['tried']}; known before: {answer['reused']}{more}."


def row_name(row):
    """The GPU and the settings of ROW of a table, with the largest value of a range."""
    settings = dict(row["settings"])
    if row["largest"] is not None:
        settings[row["vary"]] = row["largest"]
    words = (f"{name}={value}" for name, value in settings.items())
    return wording.escape(" ".join([row["gpu"], *words]))


def _between(ends):
    """From the first to the second of ENDS, in bytes; "": None."""
    low, high = (wording.size(count) for count in ends or (0, 0))
    if not ends or low == high:
        return low if ends else ""
    number, unit = low.split()
    return f"{number}-{high}" if unit == high.split()[1] else f"{low}-{high}"


def _most(row):
    return max(row["total_range_bytes"] or [0])


def _names(rows):
    more = f" and {len(rows) - _ROWS_NAMED} more" * (len(rows) > _ROWS_NAMED)
    return ", ".join(map(row_name, rows[:_ROWS_NAMED])) + more


def _of(answer):
    vary = answer["vary"]
    program = wording.escape(answer["program"])
    if vary is None:
        return program
    value = vary["largest"] if vary["largest"] is not None else vary["lowest"]
    return f"{program} with {wording.escape(vary['name'])}={value}"


def _headline(answer):
    # The fullest device counts.
    item = min(answer["devices"], key=lambda item: item["headroom_bytes"])
    capacity, left = item["capacity_bytes"], item["headroom_bytes"]
    on = f"on {_an(item['name'])} with {wording.size(capacity)}"
    if answer["fits"]:
        return (
            f"{_of(answer)} fits {on}: it takes {wording.size(capacity - left)} and leaves "
            f"{wording.size(left)}."
        )
    if left < 0:
        return (
            f"{_of(answer)} does not fit {on}: it takes {wording.size(capacity - left)}, "
            f"{wording.size(-left)} too much."
        )
    return f"{_of(answer)} does not fit {on}."


def _ranks(answer):
    """The table of the ranks that were run."""
    world = answer["world"]
    reasons = {row["rank"]: row["reason"] for row in world["ranks"]}
    nodes = f"{world['nodes']:,} {'node' if world['nodes'] == 1 else 'nodes'}"
    yield f"Ranks that were run, each alone, of {world['size']:,} on {nodes}"
    yield f"  {'rank':>6}  {'peak':>12}  {'reserved':>12}  {'in all':>12}  {'left':>12}  why"
    for item in answer["devices"]:
        yield f"  {item['rank']:>6}  {_sizes(item)}  {reasons[item['rank']]}"
    yield f"Rank {world['decides']} decides: it has the least left."


def _rows(world):
    """The table of a rank by how many rows come to it."""
    yield "Rows for experts that ranks send each other: how many come follows from data"
    yield f"  {'come':>6}  {'peak':>12}  {'reserved':>12}  {'in all':>12}  {'left':>12}"
    for item in world["rows"]:
        yield f"  {item['assumed']:>6}  {_sizes(item)}"
    yield (
        f"Of rank {world['rows'][0]['rank']}, if each rank has as many rows as this one, and none of all "
        "of them come to it, as many as to each other rank, or all. Where this changes from "
        "step to step, torch may reserve more. In the other figures the other ranks send as "
        "this one does."
    )
    if world["rows"][-1]["headroom_bytes"] < 0:
        yield "If all come to one rank, it does not fit."


def _sizes(item):
    left = item["headroom_bytes"]
    sizes = [wording.size(item[key]) for key in BYTES]
    sizes.append(wording.size(left) if left >= 0 else f"-{wording.size(-left)}")
    return "  ".join(size.rjust(12) for size in sizes)


def _an(name):
    return f"an {name}" if name.startswith("NVIDIA") else f"a {name}"


def _where(place, start):
    line = place["reason"] or "an unknown line"
    if place["file"]:
        path = wording.shorten(place["file"], start)
        line = f"{path}:{place['line']} {place['function']}"
    rank = "" if place["rank"] is None else f" of rank {place['rank']}"
    if place["requested_bytes"] is None:
        error = wording.escape((place["error"] or "").replace("\n", " "))
        return f"Memory ran out{rank} {line}: {error}"
    asked = wording.size(place["requested_bytes"])
    return f"Memory ran out{rank} in {wording.escape(line)}, which asked for {asked}."


def _device(item, several, start):
    if several:
        rank = "" if item["rank"] is None else f", rank {item['rank']}"
        yield f"cuda:{item['device']}{rank}"
    total = item["total_bytes"]
    rows = [
        (item["allocated_peak_bytes"], "allocated at the peak"),
        (item["reserved_peak_bytes"], "reserved by torch at the peak"),
        (item["outside_bytes"], "outside torch: CUDA context, libraries"),
        (total, "in all, as nvidia-smi counts"),
    ]
    yield from (f"  {wording.size(count):>12}  {what}" for count, what in rows)
    yield from _ranges(item)
    settings = item["settings"]
    if settings is not None and _worth_saying(settings, item):
        saved = wording.size(settings["saving_bytes"])
        fits = " and fits" * (settings["fits"] and not item["fits"])
        yield f"With these settings it reserves {saved} less{fits}:"
        yield f"  PYTORCH_CUDA_ALLOC_CONF={wording.escape(settings['conf'])}"
    yield "At the peak, by category"
    whole = item["allocated_peak_bytes"]
    kinds = sorted(item["by_category"].items(), key=lambda pair: -pair[1])
    for kind, count in kinds[:_CATEGORIES_SHOWN]:
        if count:
            yield f"  {wording.size(count):>12}  {wording.share(count, whole)}  {kind.replace('_', ' ')}"
    if item["by_line"]:
        yield "By line"
    for line in item["by_line"][:_LINES_SHOWN]:
        place = wording.escape(wording.place(line, start))
        yield f"  {wording.size(line['bytes']):>12}  {wording.share(line['bytes'], whole)}  {place}"


def _ranges(item):
    low, high = item["allocated_peak_range_bytes"]
    estimated = low != high
    if estimated:
        yield (
            f"Allocated: {wording.size(low)} to {wording.size(high)}, depending on what cuDNN "
            "takes for convolutions."
        )
    low, high = item["reserved_peak_range_bytes"]
    if low != high:
        also = ", and on what cuDNN takes for convolutions" * estimated
        yield (
            f"Reserved: {wording.size(low)} to {wording.size(high)}, depending on driver "
            f"placement{also}."
        )


def _worth_saying(settings, item):
    """Whether SETTINGS matter: they make it fit, or save one percent."""
    return settings["fits"] > item["fits"] or (
        settings["saving_bytes"] >= item["total_bytes"] // 100
    )


def _tried(vary):
    yield f"Tried {wording.escape(vary['name'])}"
    for row in vary["tried"]:
        if row["fits"]:
            yield (
                f"  {row['value']:>8}  fits            {wording.size(row['total_bytes']):>12}"
                f", of which allocated {wording.size(row['allocated_peak_bytes'])}"
            )
        else:
            how = "does not fit" if row["error"] is None else "failed, see below"
            yield f"  {row['value']:>8}  {how}"
    if vary["largest"] is None:
        yield f"Not even {vary['lowest']} fits."
    else:
        more = " (the highest of the range)" * (vary["largest"] == vary["highest"])
        yield f"The largest that fits is {vary['largest']}{more}."
    if not vary["monotonic"]:
        yield (
            "A higher value took less than a lower one: there may be higher ones that fit, "
            "or lower ones that do not."
        )
    failed = [row for row in vary["tried"] if row["error"] is not None]
    if failed:
        # The output is already escaped; of several values, this one is the limit.
        name, first = wording.escape(vary["name"]), failed[0]
        yield (
            f"With {name}={first['value']} the program failed for another reason than memory: "
            f"{first['error']}"
        )


def _notes(answer):
    steps = answer["steps"]
    if answer["ended"] == "end":
        yield f"The program ran to its end, with {_steps(steps)}."
    elif answer["ended"] == "stopped":
        yield (
            f"memlab ended the program after {_steps(steps)}; no peak rose in the last "
            f"{answer['steps_after_peak']}. The figures leave out what the program does later, "
            "such as an evaluation or longer inputs."
        )
    elif answer["ended"] == "failed":
        yield f"The program failed after {_steps(steps)}."
    else:
        yield (
            f"The time limit ended the program after {_steps(steps)}; no peak rose in the last "
            f"{answer['steps_after_peak']}. The figures leave out what the program does later."
        )
    for item in answer["devices"]:
        if item["ooms"] and answer["fits"]:
            yield (
                f"cuda:{item['device']} ran out of memory {_times(item['ooms'])}, and the "
                "program went on."
            )
        elif item["retries"]:
            yield (
                f"cuda:{item['device']} was full {_times(item['retries'])}; torch freed its "
                "cache to continue, which costs time."
            )
    if not _measured(answer):
        yield (
            f"What CUDA takes outside torch was measured on an {_MEASURED_ON} with torch "
            f"{_MEASURED_WITH}; here it may be some hundred MiB more or less."
        )
    for note in answer["notes"]:
        yield f"{note[0].upper()}{note[1:]}."


def _measured(answer):
    return answer["torch"].startswith(f"{_MEASURED_WITH}.") and all(
        item["name"] == _MEASURED_ON for item in answer["devices"]
    )


def _times(count):
    return "once" if count == 1 else f"{count} times"


def _steps(count):
    return f"{count} step of its optimizer" if count == 1 else f"{count} steps of its optimizer"
