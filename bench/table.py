"""The figures of bench/run.py as tables for people."""


def show(results):
    m = results["machine"]
    if m:
        print(f"\n{m['device']}, torch {m['torch']}, Python {m['python']}, "
              f"{m['cores']} cores of {m['processor']}, {m['date']}, "
              f"memlab {m['revision']}")
        if m["phantom"]:
            print("Phantom device: no kernel runs, so recorders take larger shares of a "
                  "step than on a GPU.")
    print(f"{results['repeats']} interleaved repeats of each recorder; medians.  (a..b): "
          "quartiles.  [a..b]: 95 % interval of the median.")
    memory = {}
    for part, figures in results["parts"].items():
        kind, _, name = part.partition("/")
        if "failed" in figures or "skipped" in figures:
            print(f"\n{part}: not measured: "
                  f"{figures.get('failed') or figures.get('skipped')}")
        elif kind == "memory":
            memory[name] = figures
        else:
            {"step": show_step, "event": show_event, "lines": show_lines,
             "reporter": show_reporter,
             "snapshot": show_snapshot}[kind](figures)
    if memory:
        show_memory(memory)


def show_step(figures):
    host, gpu = figures["launch_ms"]["median"], figures["then_gpu_ms"]["median"]
    print(f"\nTraining step of {figures['model']}, batch {figures['batch']} x "
          f"{figures['length']}, {figures['precision']}, {figures['events']:,} events;\n"
          f"the host launches it in {host:.1f} ms, the GPU is done {gpu:.1f} ms later")
    print(f"  {'':17} {'ms':>8} {'(quartiles)':>18} {'over off':>9}  "
          f"{'[95 %]':>16} {'ns an event':>12}")
    for name, row in figures["rows"].items():
        ms = row["ms"]
        line = f"  {name:17} {ms['median']:8.3f} {pair(ms['quartiles'], 3, '()'):>18}"
        if "share_over_off" in row and name != "off":
            share = row["share_over_off"]
            percent = [100 * bound for bound in share["interval_95"]]
            line += (f" {100 * share['median']:+8.2f}%  {pair(percent, 2, '[]', '+'):>16}"
                     f" {row['ns_an_event_over_off']:12.0f}")
        print(line)


def show_event(figures):
    for kind in ("one_size", "many_live"):
        print(f"\nAllocation and free answered by the cache (3 events), stacks of "
              f"{figures['depth']} Python frames:\n{figures[kind]['title']}")
        print(f"  {'':17} {'ns':>8} {'(quartiles)':>18} {'ns an event over off':>22}  "
              f"{'[95 %]':>14}")
        for name, row in figures[kind]["rows"].items():
            ns = row["pair_ns"]
            line = f"  {name:17} {ns['median']:8.0f} {pair(ns['quartiles'], 0, '()'):>18}"
            if name not in ("off", "never attached"):
                added = row["event_ns_over_off"]
                line += (f" {added['median']:22.0f}  "
                         f"{pair(added['interval_95'], 0, '[]'):>14}")
            print(line)


def show_lines(figures):
    print("\nLine profilers, by what the traced line does")
    if "without" in figures:
        print(f"  {figures['without']}")
    for kind in ("idle", "allocating", "beside"):
        print(f"  {figures[kind]['title']}")
        rows = figures[kind]["rows"]
        print(f"  {'':17} {'ns':>10} {'(quartiles)':>20} {'ns a line over off':>20}  "
              f"{'[95 %]':>20}")
        for name, row in rows.items():
            ns, added = row["line_ns"], row["line_ns_over_off"]
            line = f"  {name:17} {ns['median']:10.0f} {pair(ns['quartiles'], 0, '()'):>20}"
            if name != "off":
                line += (f" {added['median']:20.0f}  "
                         f"{pair(added['interval_95'], 0, '[]'):>20}")
            print(line)


def show_reporter(figures):
    print(f"\nReporters, {figures['tensors']:,} tensors among {figures['objects']:,} "
          "objects")
    if "without" in figures:
        print(f"  {figures['without']}")
    for kind in ("collect", "report"):
        rows = dict(figures[kind])
        ratio = rows.pop("ratio", None)
        print(f"  {kind:17} {'ms':>8} {'(quartiles)':>18} {'times memlab':>14}")
        for name, row in rows.items():
            ms = row["ms"]
            line = f"  {name:17} {ms['median']:8.2f} {pair(ms['quartiles'], 2, '()'):>18}"
            if ratio and name != "memlab":
                line += f" {ratio['median']:14.1f}"
            print(line)


def show_memory(memory):
    """The rows of all recorders; bytes an event."""
    print("\nMemory of recorded events, each recorder in a process of its own")
    print(f"  {'':17} {'events':>10} {'bytes an event':>15} {'of the process':>15} "
          f"{'on disk':>9}")
    for name, figures in memory.items():
        own = record_bytes(figures)
        print(f"  {name:17} {figures['events']:10,} "
              f"{'' if own is None else f'{own:.1f}':>15} "
              f"{figures['resident_bytes'] / figures['events']:15.1f}"
              + (f" {figures['file_bytes'] / figures['events']:9.1f}"
                 if "file_bytes" in figures else ""))


def record_bytes(figures):
    """Bytes of an event in the recorder's lane, stack tables apart; None of others."""
    stats = figures.get("recorder")
    if stats is None or not stats["lane_events"]:
        return None
    return stats["lane_bytes"] / stats["lane_events"]


def show_snapshot(figures):
    rows, events = figures["rows"], figures["events"]
    print(f"\nReading {events:,} events and writing them as torch's pickle")
    for name, row in rows.items():
        print(f"  {name:17} {1e3 * row['total_s']:9.1f} ms (read {1e3 * row['read_s']:.1f}"
              f", write {1e3 * row['write_s']:.1f}), "
              f"{row['file_bytes'] / max(events, 1):.1f} bytes an event in the file")


def pair(bounds, digits, brackets, sign=""):
    low, high = (f"{bound:{sign}.{digits}f}" for bound in bounds)
    return f"{brackets[0]}{low}..{high}{brackets[1]}"
