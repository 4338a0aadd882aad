"""The account of an out of memory in words.

The C core has all figures.
"""

from memlab._report import model_lines, peaks
from memlab._text import wording

_size = wording.size


def text(recording, device, start=None) -> str:
    """The account of a device's last out of memory; "" if there was none."""
    answer = recording.oom(device)
    if answer is None:
        return ""
    name = wording.escape(recording.device_name(device))
    out = [_headline(answer, name, start)]
    if answer["request"]["caller"]:
        out.append(f"  Called from {_place(answer['request']['caller'], start)}.")
    out += [part for line in _state(answer) for part in _wrapped(line, "  ", "  ")]
    out += ["", *_wrapped(_VERDICTS[answer["verdict"]](answer))]
    out += _holes(answer, start)
    out += _live(answer, start)
    advice = [
        _ADVICE[item["kind"]](item, answer, start)
        for item in answer["advice"]
        if item["kind"] in _ADVICE
    ]
    if advice:
        out += ["", "What to try"]
        for line in advice:
            out += _wrapped(line, "  - ", "    ")
    return "\n".join(out) + "\n"


def _wrapped(line, first="", rest=""):
    import textwrap

    return textwrap.wrap(
        line,
        80,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _place(item, start):
    """FILE:LINE FUNCTION of an item with a line, or why it has none."""
    if item["file"]:
        path = wording.shorten(item["file"], start)
        place = f"{path}:{item['line']} {item['function']}"
    else:
        place = item["reason"] or "an unknown line"
    return wording.escape(place)


def _near(item):
    """A note if the line of a block or request is not exact."""
    return wording.HOW_WORDS.get(item["how"], "")


def _circumstances(*words):
    """The non-empty WORDS, in brackets."""
    said = [word for word in words if word not in ("", "unknown", "other")]
    return f" ({', '.join(map(wording.escape, said))})" if said else ""


def _headline(answer, name, start):
    request = answer["request"]
    brackets = _circumstances(request["phase"], _near(request), request["module"])
    which = ""
    if answer["count"] > 1:
        which = f", number {answer['number']} of the {answer['count']} that were kept"
    return (
        f"CUDA out of memory on {name} in {_place(request, start)}{brackets}: asked for "
        f"{_size(request['bytes'])} ({request['bytes']} bytes){which}"
    )


def _state(answer):
    at, device, unused = answer["at"], answer["on_device"], answer["unused"]
    cached = at["reserved_bytes"] - at["active_bytes"]
    total = device["total_bytes"]
    of = f" of {_size(total)}" if total is not None else ""
    yield f"The driver had {_size(device['free_bytes'])}{of} left."
    if device["allowed_bytes"] is not None:
        yield (
            f"This process is limited to {_size(device['allowed_bytes'])}, of which "
            f"{_size(device['headroom_bytes'])} were still available."
        )
    yield (
        f"torch held {_size(at['reserved_bytes'])}: {_size(at['allocated_bytes'])} "
        f"allocated, {_size(cached)} cached but unused."
    )
    if answer["pending_bytes"]:
        yield f"{_size(answer['pending_bytes'])} were freed but wait for another stream."
    if device["outside_bytes"]:
        yield (
            f"{_size(device['outside_bytes'])} were held outside of torch's allocator: "
            "CUDA context, libraries, other processes."
        )
    eligible = unused["eligible"]
    if eligible["bytes"]:
        yield (
            f"Of the unused cache {_size(eligible['bytes'])} could serve this request, in "
            f"{_pieces(eligible['pieces'])}, the largest "
            f"{_size(eligible['largest_bytes'])}."
        )
    for kind, why in _NOT_ELIGIBLE.items():
        if unused[kind]["bytes"]:
            yield (
                f"Not eligible: {_size(unused[kind]['bytes'])} in "
                f"{_pieces(unused[kind]['pieces'])}, {why(answer)}."
            )
    if answer["released_bytes"]:
        yield (
            f"Just before, torch returned {_size(answer['released_bytes'])} of unused "
            "segments to the driver; that was not enough."
        )
    if answer["mismatches"]:
        yield (
            f"{answer['mismatches']} events or blocks do not fit the allocator's rules; "
            "figures are estimates."
        )


def _pieces(count):
    return "1 piece" if count == 1 else f"{count} pieces"


def _blocks(count):
    return "1 block" if count == 1 else f"{count} blocks"


_NOT_ELIGIBLE = {
    "other_pool": lambda answer: (
        "of a private memory pool (a CUDA graph's or a MemPool's)"
        if answer["request"]["pool"] in (None, [0, 0])
        else "outside the private memory pool that should serve it"
    ),
    "other_size": lambda answer: (
        "of the pool for blocks above 1 MiB"
        if answer["request"]["small_pool"]
        else "of the pool for blocks up to 1 MiB"
    ),
    "other_stream": lambda answer: "of other streams",
    "oversize": lambda answer: "in blocks above max_split_size",
}


def _enough_in_one_piece(answer):
    eligible, device = answer["unused"]["eligible"], answer["on_device"]
    request = answer["request"]
    if eligible["bytes"] >= request["bytes"]:
        enough = f"The unused {_size(eligible['bytes'])} would have been enough"
    else:
        enough = (
            f"The unused {_size(eligible['bytes'])} with the {_size(device['headroom_bytes'])} "
            "still available would have been enough"
        )
    return (
        f"{enough} in one piece, but it is in "
        f"{_pieces(eligible['pieces'])}, the largest {_size(eligible['largest_bytes'])}."
    )


def _fragmented(answer):
    return (
        f"{_enough_in_one_piece(answer)} Whether a setting gets past this request is not "
        "tried here: memlab explain does, with what comes after it."
    )


def _limit(answer):
    device = answer["on_device"]
    line = (
        f"The limit of this process: the device had {_size(device['free_bytes'])} free, "
        "but set_per_process_memory_fraction left it only "
        f"{_size(device['headroom_bytes'])}."
    )
    # This advice is given only if the cache would suffice.
    if any(item["kind"] == "expandable_segments" for item in answer["advice"]):
        line += f" {_enough_in_one_piece(answer)}"
    return line


def _not_eligible(answer):
    other = sum(
        part["bytes"] for kind, part in answer["unused"].items() if kind != "eligible"
    )
    return (
        f"The memory is there, but not for this request: {_size(other)} of the unused "
        "cache could not serve it, for the reasons above."
    )


def _full(answer):
    short = answer["request"]["driver_bytes"] - answer["on_device"]["headroom_bytes"]
    return (
        f"The memory is in use: {_size(answer['at']['allocated_bytes'])} are allocated, "
        f"and {_size(short)} more would have to be free for a new segment of "
        f"{_size(answer['request']['driver_bytes'])}."
    )


def _too_big(answer):
    device, at = answer["on_device"], answer["at"]
    known = [
        n for n in (device["total_bytes"], device["allowed_bytes"]) if n is not None
    ]
    if known:
        most = f"{_size(min(known))}, all that this process may ever have"
    else:
        most = (
            f"{_size(at['reserved_bytes'] + device['free_bytes'])}, all that torch held "
            "and the driver had left"
        )
    return (
        f"The request alone is too big: {_size(answer['request']['driver_bytes'])} is "
        f"more than {most}."
    )


_VERDICTS = {
    "too_big": _too_big,
    "unexplained": lambda answer: (
        "By the allocator's rules a free block of "
        f"{_size(answer['unused']['eligible']['largest_bytes'])} would have served. The "
        "recording does not say why it was not used; a MemPool with its own rules can be "
        "the reason."
    ),
    "limit": _limit,
    "driver": lambda answer: (
        f"The driver refused {_size(answer['request']['driver_bytes'])} although it said "
        f"that {_size(answer['on_device']['free_bytes'])} were free; another process or "
        "thread may have been quicker, or these are not mappable in one piece."
    ),
    "fragmented": _fragmented,
    "not_eligible": _not_eligible,
    "outside": lambda answer: (
        "Memory outside torch's allocator is the reason: without its "
        f"{_size(answer['on_device']['outside_bytes'])} the request would have fitted."
    ),
    "full": _full,
}


def _block(block, start):
    if block["pending_free"]:
        return f"{_size(block['bytes'])} that wait for another stream"
    kind = block["category"].replace("_", " ")
    caller = block["caller"]
    return (
        f"{_size(block['bytes'])} of {_place(block, start)}"
        + _circumstances(kind, block["phase"], _near(block), block["module"])
        + (f", called from {_place(caller, start)}" if caller else "")
    )


def _holes(answer, start):
    if not answer["holes"] or answer["verdict"] in ("too_big", "driver"):
        return
    hole = answer["holes"][0]
    yield ""
    yield (
        f"Around the largest free block, {_size(hole['bytes'])} in a segment of "
        f"{_size(hole['segment_bytes'])}"
    )
    for side, edge in (("before", "begins"), ("after", "ends")):
        block = hole[side]
        yield f"  {side:6}  " + (
            _block(block, start) if block else f"the segment {edge}"
        )
    fit = answer["nearest_fit"]
    if fit is not None:
        yield (
            f"  The request would fit without {_blocks(fit['used_blocks'])} of "
            f"{_size(fit['used_bytes'])}:"
        )
        for block in fit["blocks"]:
            yield f"    {_block(block, start)}"


def _live(answer, start, lines=10):
    whole = answer["at"]["allocated_bytes"]
    if not whole:
        return
    yield ""
    yield f"What was allocated then, {_size(whole)}"
    yield from wording.aligned(peaks.category_rows(answer, whole))
    rows = model_lines.rows(answer["by_line"], whole)
    yield "  by line"
    yield from wording.aligned(
        [
            (
                _size(row.bytes),
                wording.share(row.bytes, whole),
                _blocks(row.figures["blocks"]),
                wording.escape(row.place(start)),
            )
            for row in rows[:lines]
        ]
    )
    if rows[lines:]:
        rest = sum(row.bytes for row in rows[lines:])
        yield f"  ... and {len(rows) - lines} more lines with {_size(rest)}"


def _grown(item, answer, start):
    growth = answer["growth"]
    step = "training step" if growth["marked_steps"] else "backward pass"
    line = (
        f"Memory is kept from step to step: its lowest level rose with each of the last "
        f"{growth['steps']} {step}s, from {_size(growth['first_bytes'])} to "
        f"{_size(growth['last_bytes'])}. Look for tensors that are collected: a loss or "
        "an output kept without .item() or .detach()."
    )
    grew = [
        f"{_place({**place, 'reason': ''}, start)} by "
        f"{_size(place['after_bytes'] - place['before_bytes'])}"
        for place in growth["by_line"]
    ]
    return f"{line} Most grew: {'; '.join(grew)}." if grew else line


def _part(item, answer):
    whole = answer["at"]["allocated_bytes"]
    part = wording.share(item["bytes"], whole).strip()
    return f"{_size(item['bytes'])}, {part} of what is allocated,"


def _activations(item, answer, start):
    return (
        f"{_part(item, answer)} are activations saved for backward: activation "
        "checkpointing (torch.utils.checkpoint) keeps fewer of them, autocast to bfloat16 "
        "halves float32 ones, and they shrink with the batch or the sequence. What comes "
        "after this instant is not in these figures."
    )


# Settings are not among them: no trial shows their effect.
_ADVICE = {
    "request": lambda item, answer, start: (
        f"Ask for less than {_size(item['bytes'])} at once: check the shape, or do it in "
        "parts. No setting of the allocator helps."
    ),
    "raise_limit": lambda item, answer, start: (
        "Raise torch.cuda.set_per_process_memory_fraction(): the device has "
        f"{_size(item['bytes'])} free beyond the limit."
    ),
    "growth": _grown,
    "max_split_size": lambda item, answer, start: (
        "Raise or leave out max_split_size_mb: it keeps "
        f"{_size(item['bytes'])} of free blocks from being split for this request."
    ),
    "other_stream": lambda item, answer, start: (
        f"{_size(item['bytes'])} of the unused cache belong to other streams: allocate on "
        "one stream, or call torch.cuda.empty_cache() when the others are done."
    ),
    "other_pool": lambda item, answer, start: (
        f"{_size(item['bytes'])} of the unused cache belong to another memory pool: drop "
        "the CUDA graphs or MemPools that are not needed, or let graphs share a pool "
        "(torch.cuda.graph_pool_handle())."
    ),
    "outside": lambda item, answer, start: (
        f"{_size(item['bytes'])} of the device are held outside of torch's allocator: "
        "nvidia-smi names the processes; a CUDA context and its libraries alone take "
        "some hundred MiB."
    ),
    "logits": lambda item, answer, start: (
        f"The {_size(item['bytes'])} are asked for by a loss over classes: compute it in "
        "chunks of the tokens or by a fused linear cross entropy, which never holds all "
        "logits, and keep them in bfloat16."
    ),
    "activations": _activations,
    "optimizer_state": lambda item, answer, start: (
        f"{_part(item, answer)} are optimizer state: shard it (ZeRO, FSDP), keep it in 8 "
        "or 16 bits, or take an optimizer with less of it."
    ),
    "gradients": lambda item, answer, start: (
        f"{_part(item, answer)} are gradients: zero_grad(set_to_none=True) before the "
        "forward pass frees them for its time; FSDP shards them."
    ),
    "parameters": lambda item, answer, start: (
        f"{_part(item, answer)} are parameters: shard them (FSDP), keep them in "
        "bfloat16, or train adapters of them."
    ),
    "one_line": lambda item, answer, start: (
        f"One line holds {_part(item, answer)}, which no module or optimizer owns: "
        f"{_place(item, start)}."
    ),
}
