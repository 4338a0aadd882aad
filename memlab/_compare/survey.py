"""Ranks of a large run side by side: each recording is summed up alone, and the sums compared.

Owns what is kept of a rank, which ranks are of one kind, and what stands out.  Recordings are
read one at a time in each worker; of each stays a summary of some kilobytes.
"""

from __future__ import annotations

import collections
import concurrent.futures
import os
import statistics

from memlab import _core
from memlab._files import load, merged
from memlab._report.answer import Answer, listed
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from memlab._answers import Survey
    from memlab._core import _Path

__all__ = ["ranges", "summary", "survey", "text"]

# Of a rank's lines those stay apart that have this share of its peak, ...
_LINE = 0.001
# ... ranks are of one kind whose lines differ by this share of the higher peak, ...
_ALIKE = 0.02
# ... and a few ranks are unlike a kind that has so many times as many of them, if the two have
# this share of the lower peak in common: else they do other work, as a stage does.
_TIMES = 4
_RELATED = 0.5
# DistributedDataParallel makes its buckets when it is made, and anew in the second step.
_DDP = "torch/nn/parallel/distributed.py"
_FIRST, _ANEW = "_ddp_init_helper", "_pre_forward"
# What an answer tells elsewhere, or not.
_INNER = ("of", "lines", "last_oom")
# Kinds, ranks of a kind and lines of a difference that the text shows.
_SHOWN = 8


# ---- One recording ----


def _line(row):
    return (
        row["file"],
        row["line"],
        row["function"],
        row["module"],
        "backward" if row["backward"] else "",
        row["reason"],
    )


def _row_of(stack, rows):
    """The number of the one of ROWS, by line, that has the memory of STACK; None: none has."""
    for frame in stack["frames"]:
        for i, row in enumerate(rows):
            same = row["file"] == frame["filename"] and row["phase"] == stack["phase"]
            if same and row["line"] <= frame["line"] <= max(row["line"], row["until_line"]):
                if row["bytes"] >= stack["bytes"]:
                    return i
    return None


def _buckets(peak):
    """(bytes of DistributedDataParallel's buckets by the function that made them, what is left
    of the rows by line without these).
    """
    left, made = [row["bytes"] for row in peak["by_line"]], collections.Counter()
    for stack in peak["by_stack"]:
        # Above it may be frames of C++.
        frames = (each for each in stack["frames"] if each["filename"].endswith(".py"))
        last = next(frames, None)
        if last is None or not last["filename"].endswith(_DDP):
            continue
        i = _row_of(stack, peak["by_line"]) if last["name"] in (_FIRST, _ANEW) else None
        if i is not None:
            left[i] -= stack["bytes"]
            made[last["name"]] += stack["bytes"]
    return made, left


def _lines(peak, made, left):
    """The bytes of each line of PEAK, small ones as one.  Buckets are as one, too, and count
    once: which line made those that are there, and whether torch has let the first ones go
    by then, is chance.  MADE, LEFT: of _buckets().
    """
    whole = peak["peak"]["allocated_bytes"]
    lines = collections.Counter()
    for row, size in zip(peak["by_line"], left):
        if size:
            large = size >= _LINE * whole
            lines[_line(row) if large else ("", 0, "", "", "", "in small lines")] += size
    if made:
        lines["", 0, "", "", "", "in DistributedDataParallel's buckets"] = max(made.values())
    return list(lines.items())


def _device(recording, device):
    """What is kept of a DEVICE, an index and a number."""
    index = device["device"]
    peak = recording.peak(index)
    made, left = _buckets(peak)
    steps = recording.columns("steps", index)
    growth = recording.growth(index)
    certain = [line for line in growth["lines"] if line["certain"]]
    # A step has a row for each category.
    ooms = steps["ooms"][:: len(_core.COLUMN_TEXTS["category"])]
    return {
        "device": device["number"],
        "peak_allocated_bytes": peak["peak"]["allocated_bytes"],
        "peak_reserved_bytes": peak["whole_peak"]["reserved_bytes"],
        "peak_step": peak["moment"]["step"],
        "last_step": steps["step"][-1] if len(steps["step"]) else None,
        "ooms": sum(ooms),
        "last_oom": _last_oom(recording, index, steps["step"], ooms),
        "gpu_bytes": peak["gpu"]["total_bytes"] if peak["gpu"] else None,
        "dropped_events": peak["dropped_events"],
        "by_category": {name: size for name, size in peak["by_category"].items() if size},
        # Those beside which others were made.
        "first_buckets_bytes": made[_FIRST] if made[_ANEW] else 0,
        "lines": _lines(peak, made, left),
        "growing": [
            (
                _line({**line, "backward": line["phase"] == "backward"}),
                line["bytes_per_step"],
                line["since_step"],
            )
            for line in certain
        ],
    }


def _last_oom(recording, index, steps, ooms):
    """(line, bytes that were asked for, step) of the last out of memory; None: none is in the
    recording.
    """
    oom = recording.oom(index)
    if oom is None:
        return None
    request = oom["request"]
    line = _line({**request, "backward": request["phase"] == "backward"})
    step = next((i for i in reversed(range(len(ooms))) if ooms[i]), None)
    rows = len(_core.COLUMN_TEXTS["category"])
    return line, request["bytes"], None if step is None else steps[step * rows]


def summary(path: _Path) -> list[dict[str, Any]]:
    """What a survey keeps of the recording at PATH: a dict for each of its ranks, of plain
    values, so that it may be made in another process.  Raises what memlab.open() does.
    """
    recording = load.read_recording(path, True)
    name = merged.name_of(path)
    named = merged.rank_in(os.path.basename(name))
    ranks = merged.ranks_of(recording)
    found = []
    for rank in ranks:
        devices = [_device(recording, device) for device in rank["devices"]]
        top = max(devices, key=lambda device: device["peak_allocated_bytes"], default={})
        number = rank["rank"]
        if number is None and len(ranks) == 1 and named >= 0:
            number = named
        found.append(
            {
                "rank": number,
                "world_size": rank["world_size"],
                "host": rank["host"],
                "state": rank["state"],
                "file": name,
                **top,
            }
        )
    return found


# ---- All of them ----


def _apart(one, other):
    """By how many bytes the lines of two ranks differ, counted both ways."""
    lines = one["of"].keys() | other["of"].keys()
    return sum(abs(one["of"].get(line, 0) - other["of"].get(line, 0)) for line in lines)


def _share_apart(one, other):
    higher = max(one["peak_allocated_bytes"], other["peak_allocated_bytes"], 1)
    return _apart(one, other) / higher


def _in_common(one, other):
    """The share of the lower peak that both ranks have at the same lines."""
    lower = min(one["peak_allocated_bytes"], other["peak_allocated_bytes"])
    same = sum(min(size, other["of"].get(line, 0)) for line, size in one["of"].items())
    return same / max(lower, 1)


def _kinds(ranks):
    """Lists of ranks that are alike, the largest first; within each the first leads."""
    kinds = []
    for rank in ranks:
        for kind in kinds:
            if _share_apart(kind[0], rank) <= _ALIKE:
                kind.append(rank)
                break
        else:
            kinds.append([rank])
    return sorted(kinds, key=lambda kind: (-len(kind), kind[0]["rank"]))


def _difference(rank, other):
    """The lines in which RANK differs from OTHER, the largest first."""
    lines = rank["of"].keys() | other["of"].keys()
    rows = [(rank["of"].get(line, 0) - other["of"].get(line, 0), line) for line in lines]
    rows.sort(key=lambda row: (-abs(row[0]), row[1]))
    return [{"difference_bytes": size, **_named(line)} for size, line in rows if size]


def _named(line):
    return dict(zip(("file", "line", "function", "module", "phase", "reason"), line))


def _nearest(kind, others):
    """The one of OTHERS with most of whose memory KIND has in common: what it has beyond does
    not count, as long as others are not as near.
    """

    def far(other):
        one, two = kind[0], other[0]
        return -round(_in_common(one, two), 2), _share_apart(one, two)

    return min(others, key=far)


def _unlike(kinds):
    """(kind, the kind that it should be like) of the few ranks that stand out."""
    for kind in kinds:
        large = [
            other
            for other in kinds
            if len(other) >= max(_TIMES * len(kind), 3)
            and _in_common(kind[0], other[0]) >= _RELATED
        ]
        if large:
            yield kind, _nearest(kind, large)


def _differing(kinds):
    """(kind, the larger kind nearest to it) of those that have most in common, as stages that
    should be alike.
    """
    for i, kind in enumerate(kinds):
        near = [other for other in kinds[:i] if _in_common(kind[0], other[0]) >= _RELATED]
        if near:
            yield kind, _nearest(kind, near)


def _compared(kind, other):
    top = max(kind, key=lambda rank: rank["peak_allocated_bytes"])
    return {
        **_described(kind),
        "rank": top["rank"],
        "step": top["peak_step"],
        "like": other[0]["rank"],
        "like_ranks": len(other),
        "difference_bytes": top["peak_allocated_bytes"] - other[0]["peak_allocated_bytes"],
        "by_line": _difference(top, other[0]),
    }


def _described(kind):
    peaks = [rank["peak_allocated_bytes"] for rank in kind]
    return {
        "ranks": [rank["rank"] for rank in kind],
        "lowest_peak_bytes": min(peaks),
        "highest_peak_bytes": max(peaks),
        "highest_reserved_bytes": max(rank["peak_reserved_bytes"] for rank in kind),
        "by_category": kind[0]["by_category"],
    }


def _in_order(summaries):
    """The ranks that recorded, each once, in whatever order they came."""
    seen = merged.Seen()
    ranks = []
    for rank in summaries:
        if "lines" not in rank:
            continue
        if rank["rank"] is None:
            rank["rank"] = len(ranks)
        seen.check(rank["rank"], rank["file"])
        rank["of"] = {tuple(line): size for line, size in rank["lines"]}
        ranks.append(rank)
    ranks.sort(key=lambda rank: rank["rank"])
    return ranks


def _reduce(summaries):
    ranks = _in_order(summaries)
    kinds = _kinds(ranks)
    unlike = list(_unlike(kinds))
    apart = {id(kind) for kind, _ in unlike}
    alike = [kind for kind in kinds if id(kind) not in apart]
    last = [rank["last_step"] for rank in ranks if rank["last_step"] is not None]
    usual = statistics.median_low(last) if last else None
    peaks = sorted(ranks, key=lambda rank: -rank["peak_allocated_bytes"])
    world = max((rank["world_size"] or 0 for rank in ranks), default=0)
    known = {rank["rank"] for rank in ranks}
    return {
        "ranks": [
            {key: value for key, value in rank.items() if key not in _INNER}
            for rank in ranks
        ],
        "world_size": world or None,
        "missing_ranks": [rank for rank in range(world) if rank not in known],
        "highest": peaks[0]["rank"] if peaks else None,
        "median_peak_bytes": statistics.median_low(
            [rank["peak_allocated_bytes"] for rank in ranks]
        )
        if ranks
        else 0,
        "kinds": [_described(kind) for kind in alike],
        "unlike": [_compared(kind, other) for kind, other in unlike],
        "differing": [_compared(kind, other) for kind, other in _differing(alike)],
        "ran_out": [rank["rank"] for rank in ranks if rank["ooms"]],
        "ooms": [
            {"rank": rank["rank"], "step": step, "requested_bytes": size, **_named(line)}
            for rank in ranks
            if rank["last_oom"] is not None
            for line, size, step in [rank["last_oom"]]
        ],
        "killed": [rank["rank"] for rank in ranks if rank["state"] == "cut off"],
        "behind": [
            {"rank": rank["rank"], "last_step": rank["last_step"], "usual_step": usual}
            for rank in ranks
            if rank["last_step"] is not None and usual is not None
            and rank["last_step"] < usual - 1
        ],
        "growing": [
            {
                "rank": rank["rank"],
                "bytes_per_step": size,
                "since_step": since,
                **_named(line),
            }
            for rank in ranks
            for line, size, since in rank["growing"]
        ],
    }


def survey(
    paths: _Path | Iterable[_Path],
    *,
    jobs: int | None = None,
    executor: concurrent.futures.Executor | None = None,
) -> Survey:
    """The ranks of a large run: which peaks, which are alike, which stand out and why.

    paths: files or folders as for memlab.merge(), names with * and ?, or URIs of these.
    jobs: how many recordings are read at once, by threads; None: as many as there are cores,
    and no more than eight.  executor: whatever runs the work instead, a
    concurrent.futures.Executor or what has its submit(), as Dask's client: each recording
    is summed up where it runs, and must be readable there.

    Returns a dict, described in docs/REPORT.md; sizes are in bytes.  Its str() is the text
    of `memlab merge`.  Raises memlab.Error for two files of one rank, ValueError for jobs
    below 1, and what memlab.open() raises.
    """
    one = isinstance(paths, (str, bytes, os.PathLike))
    files = list(merged.files([paths] if one else paths))  # type: ignore[list-item]
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    if executor is not None:
        found = [task.result() for task in [executor.submit(summary, path) for path in files]]
    else:
        jobs = jobs or min(len(os.sched_getaffinity(0)), 8)
        with concurrent.futures.ThreadPoolExecutor(jobs, "memlab-survey") as pool:
            found = list(pool.map(summary, files))
    answer = _reduce([rank for ranks in found for rank in ranks])
    return Answer(answer, lambda answer: listed(text(answer)))  # type: ignore[return-value]


# ---- Words ----


def ranges(ranks: list[int]) -> str:
    """RANKS, in order, as "0-2, 5"."""
    parts = wording.numbers(ranks).split(", ")
    left = len(parts) - _SHOWN
    more = f" and {wording.plural(left, 'group')} more" if left > 0 else ""
    return ", ".join(parts[:_SHOWN]) + more


def _of_ranks(ranks):
    return ("rank " if len(ranks) == 1 else "ranks ") + ranges(ranks)


def _place(row):
    if not row["file"]:
        return f"({row['reason']})" if row.get("reason") else "(no line)"
    place = f"{wording.shorten(row['file'])}:{row['line']} {row['function']}"
    if row.get("module") not in (None, "", "*"):
        place += f" [{row['module']}]"
    return wording.escape(place) + (" (backward)" if row.get("phase") else "")


def _signed(count):
    return ("+" if count >= 0 else "-") + wording.size(abs(count))


def _largest(by_category):
    whole = sum(by_category.values())
    rows = sorted(by_category.items(), key=lambda item: -item[1])[:2]
    return ", ".join(
        f"{name.replace('_', ' ')} {wording.share(size, whole)}" for name, size in rows
    )


def _kind_rows(kinds):
    yield ("ranks", "peak", "reserved", "most of it")
    for kind in kinds[:_SHOWN]:
        low, high = kind["lowest_peak_bytes"], kind["highest_peak_bytes"]
        peak = wording.size(high)
        if wording.size(low) != peak:
            peak = f"{wording.size(low)} to {peak}"
        count = f" ({len(kind['ranks'])})" if kind["ranks"][1:] else ""
        yield (
            ranges(kind["ranks"]) + count,
            peak,
            wording.size(kind["highest_reserved_bytes"]),
            _largest(kind["by_category"]),
        )


def _unlike_lines(item):
    who = _of_ranks(item["ranks"])
    step = "" if item["step"] is None else f", in step {item['step']}"
    others = item["like_ranks"] - 1
    like = f" and {others} like it" if others else ""
    yield (
        f"  {who}: {_signed(item['difference_bytes'])} against rank {item['like']}{like}{step}"
    )
    shown = item["by_line"][:3]
    yield from wording.aligned(
        [(_signed(row["difference_bytes"]), _place(row)) for row in shown], "    "
    )


def _by_place(items):
    """Lists of those of ITEMS that are of one line and module, the longest first."""
    found = collections.defaultdict(list)
    for item in items:
        place = ("file", "line", "function", "module", "phase", "reason")
        found[tuple(item[key] for key in place)].append(item)
    return sorted(found.values(), key=len, reverse=True)


def _oom_lines(ooms):
    for items in _by_place(ooms)[:_SHOWN]:
        steps = sorted({item["step"] for item in items if item["step"] is not None})
        step = f" in step {steps[0]}" if steps else ""
        most = max(item["requested_bytes"] for item in items)
        yield (
            f"{_of_ranks([item['rank'] for item in items])}: {_place(items[0])} asked for "
            f"{wording.size(most)}{step}."
        )


def text(answer: Any) -> str:
    """The ranks of ANSWER, of survey(), in words."""
    ranks = answer["ranks"]
    if not ranks:
        return "No rank has recorded memory of a GPU.\n"
    head = f"Ranks: {len(ranks)}"
    if answer["missing_ranks"]:
        head += f" of {answer['world_size']}, missing: {ranges(answer['missing_ranks'])}"
    top = next(rank for rank in ranks if rank["rank"] == answer["highest"])
    step = "" if top["peak_step"] is None else f" in step {top['peak_step']}"
    out = [
        head,
        f"  highest: rank {top['rank']}, {wording.size(top['peak_allocated_bytes'])}{step}",
        f"  median:  {wording.size(answer['median_peak_bytes'])}",
        "",
        "Alike",
        *wording.aligned(list(_kind_rows(answer["kinds"]))),
    ]
    if answer["kinds"][_SHOWN:]:
        out.append(f"  and {len(answer['kinds']) - _SHOWN} more kinds")
    if answer["unlike"]:
        out += ["", "Unlike the others"]
        for item in answer["unlike"][:_SHOWN]:
            out += _unlike_lines(item)
        if answer["unlike"][_SHOWN:]:
            out.append(f"  and {len(answer['unlike']) - _SHOWN} more")
    if answer["differing"]:
        out += ["", "Groups that have most in common, and differ"]
        for item in answer["differing"][:_SHOWN]:
            out += _unlike_lines(item)
        if answer["differing"][_SHOWN:]:
            out.append(f"  and {len(answer['differing']) - _SHOWN} more")
    told = list(_sentences(answer))
    return "\n".join([*out, *([""] if told else []), *told]) + "\n"


def _sentences(answer):
    """What befell single ranks."""
    if answer["ran_out"]:
        yield f"Ran out of memory: {_of_ranks(answer['ran_out'])}."
    for line in _oom_lines(answer["ooms"]):
        yield f"  {line}"
    if answer["killed"]:
        yield f"Their process was killed: {_of_ranks(answer['killed'])}."
    if answer["behind"]:
        first = min(answer["behind"], key=lambda item: item["last_step"])
        yield (
            f"Behind: {_of_ranks([item['rank'] for item in answer['behind']])}. Rank "
            f"{first['rank']} ended in step {first['last_step']}, most ranks in step "
            f"{first['usual_step']}."
        )
    for items in _by_place(answer["growing"])[:_SHOWN]:
        most = max(item["bytes_per_step"] for item in items)
        since = min(item["since_step"] for item in items)
        yield (
            f"Grows: {_place(items[0])} keeps up to {wording.size(most)} a step since step "
            f"{since}, on {_of_ranks([item['rank'] for item in items])}."
        )
    ranks = answer["ranks"]
    first = [rank["rank"] for rank in ranks if rank["first_buckets_bytes"]]
    if first:
        most = max(rank["first_buckets_bytes"] for rank in ranks)
        yield (
            f"By chance up to {wording.size(most)} more at the peak: DistributedDataParallel's "
            f"first buckets were still there, on {_of_ranks(first)}."
        )
    dropped = [rank["rank"] for rank in ranks if rank["dropped_events"]]
    if dropped:
        yield f"Events were dropped, so figures are too low: {_of_ranks(dropped)}."
