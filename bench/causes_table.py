"""The figures of bench/causes.py as tables for people."""

WHAT = {
    "off": "memlab's tracker is attached, nothing records",
    "events": "callback, ledger, packing, what of them is not in the caches",
    "stacks": "walk over the frames, and interning",
    "hooks": "torch's hooks on the optimizer's step, empty",
    "module calls": "looks for modules called for the first time",
    "tags": "parameters, gradients and state told at the optimizer's step",
    "step notes": "the step's end is noted (samples: below)",
    "file": "the same bytes to the file",
    "uses": "last uses, without the file",
    "uses paused": "last uses in one step of eight, and not in these",
}
IN_ALL = {"step notes": "in memory", "file": "with a file", "uses": "with uses",
          "uses of some": "of 1 step in 8"}


def show(results):
    m = results["machine"]
    if m:
        print(f"\n{m['device']}, torch {m['torch']}, Python {m['python']}, {m['cores']} cores of "
              f"{m['processor']}, {m['date']}, memlab {m['revision']}")
        if m["phantom"]:
            print("Phantom device: no kernel runs, so recorders take larger shares of a step than "
                  "on a GPU.")
    print(f"{results['repeats']} interleaved repeats; medians of differences within repeats. "
          "[a..b]: 95 % interval of the median.")
    warm = show_event(results["parts"]["event"])
    for part, figures in results["parts"].items():
        if part.startswith("step/"):
            if "causes" in figures:
                show_step(figures, warm)
            else:
                print(f"\n{part}: not measured: {figures.get('failed') or figures.get('skipped')}")


def show_event(figures):
    """Returns the ns of a warm event without stacks; None: not measured."""
    if "failed" in figures:
        print(f"\nEvents: not measured: {figures['failed']}")
        return None
    print(f"\nAn allocation and its free, answered by torch's cache, {figures['depth']} Python "
          "frames deep: ns an event (of 3) over an idle tracker\n"
          f"  {'':18}{'warm':>22}{'4 MiB read before':>24}")
    columns = [figures[walk] for walk in ("0", str(4 << 20))]
    for name in columns[0]:
        if name == "torch's own":
            cells = [f"{c[name]['median']:.0f}" for c in columns]
        else:
            cells = [ns(c[name]) for c in columns]
        print(f"  {name:18}{cells[0]:>22}{cells[1]:>24}")
    return columns[0]["memlab no stacks"]["median"]


def show_step(figures, warm):
    events, causes = figures["events"], figures["causes"]
    off = causes["off"]
    host, gpu = figures["launch_ms"]["median"], figures["then_gpu_ms"]["median"]
    wall, busy = off["wall_ns"]["median"], off["processor_ns"]["median"]
    print(f"\nStep {figures['step']}: {events:,} events, {wall / 1e6:.2f} ms, of which launching "
          f"takes the processor {busy / 1e6:.2f} ms;\nthe host launches it in {host:.1f} ms, the "
          f"GPU is done {gpu:.1f} ms later")
    print(f"  {'':13}{'us a step, wall':>24}{'of it':>8}{'us, processor':>24}{'of it':>8}"
          f"{'ns an event':>12}{'faults':>8}")
    for cause, row in causes.items():
        if cause not in ("off", "uses of some"):
            line(cause, row, "added", off, events)
    print("  in all, over off:")
    for cause, name in IN_ALL.items():
        if cause in causes:
            line(name, causes[cause], "over_off", off, events)
    for cause, text in WHAT.items():
        print(f"    {cause:13} {text}")
    if {"step notes", "file"} <= causes.keys():
        first = {c: causes[c]["first_ns_over_off"] for c in ("step notes", "file")}
        print(f"  Once, in a recording's first 4 steps: {ms(first['step notes'])} ms in memory, "
              f"{ms(first['file'])} ms with a file.")
    sample = figures["sample_ns"]
    share = sample / max(250e6, 1000 * sample)
    print(f"  A sample of the host's and the GPU's memory: {sample / 1e3:.0f} us, at most "
          f"{100 * share:.2f} % of the time.")
    tags = figures["tags_ns"]
    print(f"  Tags, timed in the step's own hooks: {tags['step notes'] / 1e3:.0f} us a step in "
          f"memory, {tags['file'] / 1e3:.0f} us with a file.")
    print(f"  A page fault: {figures['fault_ns']:.0f} ns.")
    parts = figures["parts"]
    if "failed" in parts:
        print(f"  Parts of an event: not measured: {parts['failed']}")
        return
    print(f"  Parts of an event, from {parts['events']:,} of this step's events, ns:\n"
          f"  {'':13}{'warm':>20}{'4 MiB read before':>22}{'64 MiB read before':>22}")
    columns = [parts[str(walk << 20)] for walk in (0, 4, 64)]
    for name in columns[0]:
        cells = [ns(column[name]) for column in columns]
        print(f"  {name:13}{cells[0]:>20}{cells[1]:>22}{cells[2]:>22}")
    if warm is not None and "events" in causes:
        here = causes["events"]["processor_ns_added"]
        low, high = (bound / events for bound in here["interval_95"])
        print(f"  An event without its stack costs {here['median'] / events:.0f} [{low:.0f}.."
              f"{high:.0f}] ns of processor time in this step, {warm:.0f} ns warm:\n  the "
              "difference is cache misses.")


def line(name, row, suffix, off, events):
    wall, busy = row[f"wall_ns_{suffix}"], row[f"processor_ns_{suffix}"]
    faults = row[f"faults_{suffix}"]["median"]
    print(f"  {name:13}{us(wall):>24}{share(wall, off['wall_ns']):>8}{us(busy):>24}"
          f"{share(busy, off['processor_ns']):>8}{busy['median'] / events:12.0f}{faults:8.1f}")


def us(added):
    low, high = added["interval_95"]
    return f"{added['median'] / 1e3:+.0f} [{low / 1e3:+.0f}..{high / 1e3:+.0f}]"


def ms(added):
    low, high = added["interval_95"]
    return f"{added['median'] / 1e6:+.1f} [{low / 1e6:+.1f}..{high / 1e6:+.1f}]"


def ns(added):
    low, high = added["interval_95"]
    return f"{added['median']:.0f} [{low:.0f}..{high:.0f}]"


def share(added, off):
    return f"{100 * added['median'] / off['median']:+.2f}%"
