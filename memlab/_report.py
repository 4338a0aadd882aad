"""Answers for people and machines: what was live at the peak, as dict and as text.

All figures come from the C core; this file arranges and words them.
"""

import os

from memlab import _stack_lines

CATEGORIES = (
    "parameter",
    "buffer",
    "gradient",
    "optimizer_state",
    "activation",
    "temporary",
    "input",
    "workspace",
    "communication",
    "before_recording",
    "unknown",
)


# Of a line of the backward pass that is not exactly the one.
HOW_WORDS = {
    "likely": "likely",
    "near": "near this line",
    "backward_call": "called here",
}

_GAPS_SHOWN = 5
_SOURCE_SHOWN = 60
_MODULES_SHOWN = 8


def size(count: int) -> str:
    """COUNT bytes for people: 1536 -> '1.50 KiB'."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{count} B" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} TiB"


def share(part: int, whole: int) -> str:
    """PART of WHOLE in per cent."""
    return f"{100 * part / whole:5.1f} %" if whole else "    - "


def duration(count: int) -> str:
    """COUNT microseconds for people: 1500 -> '1.5 ms'."""
    if count < 1000:
        return f"{count} us"
    return f"{count / 1e3:.1f} ms" if count < 1_000_000 else f"{count / 1e6:.1f} s"


def escape(text: str) -> str:
    """TEXT with everything that could steer a terminal made visible."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode()
        for c in text
    )


def devices(recording) -> list[int]:
    """Indexes of the devices of RECORDING that have events or memory."""
    counts = [recording.counts(i) for i in range(recording.device_count)]
    return [i for i, has in enumerate(counts) if has["events"] or has["segments"]]


def peak(recording, device=None) -> dict:
    """The answer for one device: DEVICE, or the one with the largest peak."""
    if device is not None:
        return recording.peak(device)
    answers = [recording.peak(i) for i in devices(recording)]
    if not answers:
        return recording.peak(0)
    return max(answers, key=lambda answer: answer["peak"]["allocated_bytes"])


def lines(recording, device=None, functions=()) -> list[dict]:
    """The tables of the lines of FUNCTIONS, or of those that hold most, for one device."""
    answer = peak(recording, device)
    device = answer["device"]
    tables = _stack_lines.tables(recording, {device: answer}, functions)
    return [table.answer() for table in tables[device]]


def report(recording, file=None, functions=()) -> dict:
    """The answers for all devices, as `memlab report --json` prints them."""
    peaks = {i: recording.peak(i) for i in devices(recording)}
    tables = _stack_lines.tables(recording, peaks, functions)
    return {
        "file": file,
        "recording": recording.file,
        "source": recording.source,
        "ranks": recording.ranks(),
        "devices": [
            {**answer, "name": recording.device_name(i), "lines": [table.answer() for table in tables[i]]}
            for i, answer in peaks.items()
        ],
        "oom": [
            answer
            for i in devices(recording)
            if (answer := recording.oom(i)) is not None
        ],
    }


def shorten(path: str, start: str | None = None) -> str:
    """PATH relative to the folder START, or the current one, where it lies in it."""
    here = os.path.join(start or os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path


def _place(group, start) -> str:
    backward = group["phase"] == "backward"
    if group["line"] == 0 and not group["file"]:
        # Autograd's threads have no Python frames; the reason says so, in brackets.
        reason = group["reason"].removesuffix(" (backward)")
        return f"(backward pass: {reason})" if backward else f"({reason})"
    first, last = group["line"], group["until_line"]
    lines = first if first == last else f"{first}-{last}"
    place = f"{shorten(group['file'], start)}:{lines} {group['function']}"
    if group["module"]:
        place += f" [{group['module']}]"
    if first != last:
        place += " (backward, of one of these lines)"
    elif group["how"] in HOW_WORDS:
        place += f" (backward, {HOW_WORDS[group['how']]})"
    elif backward:
        place += " (backward)"
    return place


def _cut(source) -> str:
    return source if len(source) <= _SOURCE_SHOWN else source[:_SOURCE_SHOWN] + " ..."


def _kind(group) -> str:
    """The category of most of the bytes of a line, and whether there are others."""
    kinds = sorted(group["by_category"].items(), key=lambda item: -item[1])
    if not kinds:
        return ""
    more = f" +{len(kinds) - 1}" if len(kinds) > 1 else ""
    return kinds[0][0].replace("_", " ") + more


def category_rows(answer, whole):
    """The categories of ANSWER, largest first; what is unknown by the reasons why."""
    parts = [
        (count, category.replace("_", " "))
        for category, count in answer["by_category"].items()
        if category != "unknown"
    ]
    whys = answer["unknown_because"].items()
    parts += [(count, f"unknown: {why}" if why else "unknown") for why, count in whys]
    unsaid = answer["by_category"]["unknown"] - sum(count for _, count in whys)
    parts.append((unsaid, "unknown"))
    parts.sort(key=lambda part: -part[0])
    return [(size(count), share(count, whole), name) for count, name in parts if count]


def _rows(rows, indent="  "):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.rjust(widths[i]) for i, cell in enumerate(row[:-1])]
        yield (indent + "  ".join([*cells, row[-1]])).rstrip()


def text(
    recording, device=None, lines=15, code=None, start=None, oom=True, functions=()
) -> str:
    """The report for people: the peak, what was live at it, the lines of the functions
    that made it, the allocator's overhead, and, where OOM asks for it, the last out of
    memory.

    lines: rows of the table by source line.  code: a function (file, line) -> source
    text for that table.  start: the folder to which paths are shown relative; None for
    the current one.  functions: names of those to show line by line; without any, those
    that hold most; None for no such tables.
    """
    chosen = devices(recording) if device is None else [device]
    notes = "".join(line + "\n" for line in file_notes(recording.file))
    if not chosen:
        return notes + "No memory was allocated while recording.\n"
    peaks = {i: recording.peak(i) for i in chosen}
    tables = {}
    if functions is not None:
        tables = _stack_lines.tables(recording, peaks, functions)
    parts = []
    for i, answer in peaks.items():
        whole = answer["peak"]["allocated_bytes"]
        shown = tables.get(i, [])
        line_by_line = _stack_lines.text(shown, whole, bool(functions), start)
        parts.append(
            _device_text(recording, i, answer, lines, code, start, line_by_line)
        )
    if oom:
        from memlab import _oom

        parts += filter(None, (_oom.text(recording, i, start) for i in chosen))
    return notes + "\n".join(parts)


def file_notes(file):
    """Sentences about a recording's file that is not whole."""
    if file is None:
        return
    if file["state"] == "recording":
        yield f"Still being recorded by process {file['pid']}: the state so far."
    elif file["state"] == "cut off":
        yield "The recording was not ended: its process was killed or is lost."
    if file["stopped"]:
        reason = f" ({os.strerror(file['errno'])})" if file["errno"] else ""
        yield f"Not everything was stored: {file['stopped']}{reason}."
    if file["damaged_chunks"]:
        yield f"Damaged parts of the file that were left out: {file['damaged_chunks']}."
    if file["unknown_starts"]:
        yield "What was in memory when the recording began is not known."
    if file["lost_records"]:
        yield (
            f"Owners, steps, names or settings that are lost: {file['lost_records']}; "
            "categories and phases may miss them."
        )
    if file["native_frames"]:
        yield (
            "C++ frames are shown as addresses: their names are in the snapshot that the "
            "process itself saved, not in this file."
        )
    if file["unread_records"]:
        yield (
            f"Records of the file that this memlab cannot read: "
            f"{file['unread_records']}; a newer one may."
        )
    for gap in file["gaps"][:_GAPS_SHOWN]:
        missing = gap["dropped"] + gap["lost"]
        word = "events were" if missing != 1 else "event was"
        kind = "not stored" if gap["dropped"] else "lost"
        yield (
            f"{missing} {word} {kind} after event {gap['position']} of device "
            f"{gap['device']}."
        )
    if len(file["gaps"]) > _GAPS_SHOWN:
        yield f"... and {len(file['gaps']) - _GAPS_SHOWN} more gaps."


def _device_text(recording, device, answer, lines, code, start, line_by_line):
    at = answer["peak"]
    name = escape(recording.device_name(device))
    whole = at["allocated_bytes"]
    out = [f"Peak on {name}: {size(whole)} allocated ({whole} bytes)"]
    out += _moment(answer["moment"])
    out += _caveats(answer)
    if answer["by_category"]:
        out += ["", "By category"]
        rows = category_rows(answer, whole)
        out += _rows(rows) if rows else []
        if answer["inexact_category_bytes"]:
            out.append(
                f"  {size(answer['inexact_category_bytes'])} of these by rules that a "
                "program can break; all else is exact"
            )
    if answer["by_phase"]:
        rows = sorted(answer["by_phase"].items(), key=lambda item: -item[1])
        out += ["", f"By phase, in step {answer['step']}"]
        out += _rows(
            [(size(n), share(n, whole), name.replace("_", " ")) for name, n in rows]
        )
    if any(group["module"] for group in answer["by_module"]):
        out += ["", "By module"]
        groups = answer["by_module"][:_MODULES_SHOWN]
        out += _rows(
            [
                (
                    size(group["bytes"]),
                    share(group["bytes"], whole),
                    escape(group["module"] or f"({group['reason']})"),
                )
                for group in groups
            ]
        )
        rest = answer["by_module"][_MODULES_SHOWN:]
        if rest:
            left = size(sum(group["bytes"] for group in rest))
            out.append(f"  ... and {len(rest)} more modules with {left}")
    if answer["by_line"]:
        out += ["", "By line"]
        groups = answer["by_line"][:lines]
        rows = []
        for group in groups:
            place = _place(group, start)
            one = group["line"] == group["until_line"]
            source = code(group["file"], group["line"]).strip() if code and one else ""
            rows.append(
                (
                    size(group["bytes"]),
                    share(group["bytes"], whole),
                    f"{group['blocks']} blocks" if group["blocks"] != 1 else "1 block",
                    _kind(group),
                    escape(place) + (f"    {_cut(escape(source))}" if source else ""),
                )
            )
        out += _rows(rows)
        rest = answer["by_line"][lines:]
        if rest:
            bytes_left = sum(group["bytes"] for group in rest)
            out.append(f"  ... and {len(rest)} more lines with {size(bytes_left)}")
    out += line_by_line
    if recording.source == "cpu":
        # It reserves nothing beyond what is allocated.
        return "\n".join(out) + "\n"
    out += ["", "Allocator at the peak"]
    overhead = answer["overhead"]
    rows = [
        (size(at["reserved_bytes"]), "reserved from the device"),
        (size(at["active_bytes"]), "active: allocated, or waiting to be freed"),
        (size(overhead["inactive_bytes"]), "reserved but not in use"),
        (size(overhead["largest_free_bytes"]), "largest free block"),
        (size(overhead["slack_bytes"]), "lost to rounding inside blocks"),
        (
            f"{100 * overhead['fragmentation']:.1f} %",
            "fragmentation: share of the free bytes outside the largest free block",
        ),
    ]
    out += _rows(rows)
    out += _whole_gpu(answer)
    return "\n".join(out) + "\n"


# A line of the account of the whole GPU, in its order, and what people call it.
_GPU_LINES = (
    ("torch_allocated_bytes", "torch: allocated"),
    ("torch_pending_free_bytes", "torch: freed, waiting for another stream"),
    ("torch_cached_bytes", "torch: reserved but not in use"),
    ("outside_at_start_bytes", "this process outside torch, there at the start"),
    ("outside_first_step_bytes", "this process outside torch, came in the first step"),
    ("outside_later_bytes", "this process outside torch, came later"),
    ("other_processes_bytes", "other processes"),
    ("driver_bytes", "of no process (driver)"),
    ("unknown_bytes", "unknown"),
)


def _whole_gpu(answer):
    """The account of the device at the peak, and the host's memory then."""
    account, host = answer["gpu"], answer["host"]
    if account is None and answer["gpu_reason"]:
        yield from ("", f"The whole GPU was not sampled: {answer['gpu_reason']}")
    if account is not None:
        used = account["used_bytes"]
        yield from ("", f"The whole GPU at the peak: {size(used)} used ({used} bytes)")
        lines = account["lines"]
        yield from _rows(
            [
                (size(lines[key]), share(lines[key], used), words)
                for key, words in _GPU_LINES
                if lines[key]
            ]
        )
        unsaid = [words for key, words in _GPU_LINES if lines[key] is None]
        if unsaid:
            yield "  Not told by the driver, so in unknown: " + "; ".join(unsaid)
        yield "  Outside torch as sampled " + _apart(account["after_us"])
    if host is not None and account is not None:
        yield from ("", "The host, as sampled " + _apart(host["after_us"]))
        rows = (
            (host["rss_bytes"], "resident"),
            (host["pinned_allocated_bytes"], "pinned by torch, in use"),
            (host["pinned_reserved_bytes"], "pinned by torch, with its cache"),
        )
        yield from _rows([(size(n), words) for n, words in rows if n is not None])


def _apart(after_us):
    return (
        f"{duration(abs(after_us))} {'after' if after_us >= 0 else 'before'} the peak"
    )


def _moment(moment):
    said = [] if moment["step"] is None else [f"step {moment['step']}"]
    if moment["phase"] is not None:
        said.append(f"phase {escape(moment['phase'])}")
    if said:
        yield "  At the peak: " + ", ".join(said)


def _caveats(answer):
    if answer["dropped_events"]:
        yield f"  Events dropped: {answer['dropped_events']}; figures are too low"
    if answer["lost_stacks"]:
        yield f"  Events whose stack was lost: {answer['lost_stacks']}"
    if answer["lost_names"]:
        yield f"  Names that were lost, shown as <lost>: {answer['lost_names']}"
    if answer["peak_before_window"]:
        yield (
            f"  The true peak, {size(answer['whole_peak']['allocated_bytes'])}, was "
            "before the events that were kept: record with more max_entries"
        )
    elif answer["overwritten_events"]:
        yield f"  Older events overwritten: {answer['overwritten_events']}"
    if answer["uncertain_bytes"]:
        yield (
            f"  Blocks from before the recording may be up to "
            f"{size(answer['uncertain_bytes'])} larger than shown"
        )
    if answer["mismatches"]:
        yield (
            "  Events or blocks that do not fit the allocator's rules: "
            f"{answer['mismatches']}; figures are estimates"
        )
