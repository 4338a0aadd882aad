"""Times of the viewer's timeline in Chromium without a GPU: viewer.py PAGE.html

    python bench/training_events.py /tmp/long.mlab 10000000
    python -m memlab view /tmp/long.mlab --out /tmp/long.html
    python bench/viewer.py /tmp/long.html --json bench/results/NAME.json

first_paint_ms, timeline_ms: from navigation until the first contentful paint, and until
the timeline has drawn the recording.  all_ms: until the whole file is parsed.  Frames:
milliseconds between two frames while every frame moves the range, 1280 x 720, Chromium as
it is where there is no GPU (with --use-angle=swiftshader it would emulate one, at 20 ms of
processor time a frame whatever is drawn); script: what the timeline's own drawing takes of
one; cpu: what all of Chromium's processes together take for one, which other work on the
machine changes least.

    python bench/viewer.py /tmp/long.html --calls 8

counts instead: the functions that a frame calls most often, and how often.  No other work
on the machine changes that.
"""

import argparse
import collections
import datetime
import json
import os
import platform
import shutil
import statistics
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ARGUMENTS = ("--no-sandbox", "--disable-gpu")
# A function that was optimised, or that another one took in, counts no calls.
UNOPTIMISED = "--js-flags=--no-opt --no-maglev"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120

# Events in view, and what each frame does: pan by pixels, or zoom.
SCENES = {
    "pan, all of it": (0.9, "pan"),
    "pan, a tenth": (0.1, "pan"),
    "pan, a hundredth": (0.01, "pan"),
    "pan, a thousandth": (0.001, "pan"),
    "zoom, all to 3,000 events and back": (1.0, "zoom"),
    "height": (0.05, "stretch"),
}

SCENE = """async (share) => {
  const { self, device } = memlabTimeline.newest();
  const { events } = device();
  self.port.showAll();
  self.port.setRange(events * (0.5 - share / 2), events * (0.5 + share / 2));
  for (let i = 0; i < 60; i++) {
    await new Promise(requestAnimationFrame);
  }
}"""

FRAMES = """async ({ move, frames }) => {
  const { self, device } = memlabTimeline.newest();
  const canvas = document.getElementById("timeline");
  const box = canvas.getBoundingClientRect();
  const turn = (more) => canvas.dispatchEvent(new WheelEvent("wheel", {
    clientX: box.left + box.width * 0.6, clientY: box.top + box.height / 2,
    cancelable: true, ...more }));
  const frame = () => new Promise(requestAnimationFrame);
  const { events } = device();
  const times = [];
  const script = [];
  const octaves = Math.log(events / 3000) / (frames / 2);
  let last = await frame();
  for (let i = 0; i < frames; i++) {
    const back = i >= frames / 2;
    if (move === "pan") {
      turn({ deltaX: back ? -7 : 7 });
    }
    else if (move === "zoom") {
      turn({ deltaY: (back ? 250 : -250) * octaves });
    }
    else {
      turn({ deltaY: back ? 10 : -10, shiftKey: true });
    }
    const now = await frame();
    times.push(now - last);
    script.push(self.drawMs);
    last = now;
  }
  return { times, script, drawn: self.bands.count, of: self.bands.of };
}"""

MARK = "(name) => performance.getEntriesByName(name)[0]?.startTime ?? null"


def wait(page, expression):
    """Until the page's EXPRESSION is true; its policy allows no other way."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(expression):
        if time.monotonic() > end:
            raise SystemExit(f"the page never became: {expression}")


def cpu_ms():
    """CPU time so far of all processes below this one."""
    parents, times = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        times[int(folder.name)] = int(fields[11]) + int(fields[12])
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    ticks = sum(times.get(pid, 0) for pid in below - {os.getpid()})
    return 1000 * ticks / os.sysconf("SC_CLK_TCK")


def summary(values):
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 1),
        "p95": round(ordered[int(0.95 * len(ordered))], 1),
        "most": round(ordered[-1], 1),
    }


def opened(browser, path):
    """A page that has drawn its timeline, and what it took."""
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(Path(path).resolve().as_uri(), wait_until="commit")
    wait(page, "() => document.documentElement.dataset.ready === '1'")
    wait(page, "() => memlabTimeline.newest().self.complete")
    wait(page, f"() => ({MARK})('first-contentful-paint') !== null")
    result = {
        "events": page.evaluate("() => memlabTimeline.newest().device().events"),
        "page_bytes": Path(path).stat().st_size,
        "first_paint_ms": page.evaluate(MARK, "first-contentful-paint"),
        "timeline_ms": page.evaluate(MARK, "memlab-timeline"),
    }
    wait(page, "() => document.readyState === 'complete'")
    result["all_ms"] = page.evaluate(
        "() => performance.getEntriesByType('navigation')[0].domComplete"
    )
    return page, result


def measure(browser, path, frames):
    page, result = opened(browser, path)
    result["scenes"] = {}
    for name, (share, move) in SCENES.items():
        page.evaluate(SCENE, share)
        before = cpu_ms()
        found = page.evaluate(FRAMES, {"move": move, "frames": frames})
        cpu = (cpu_ms() - before) / frames
        result["scenes"][name] = {
            "frame_ms": summary(found["times"]),
            "script_ms": summary(found["script"]),
            "cpu_ms": round(cpu, 1),
            "drawn": found["drawn"],
            "of": found["of"],
        }
    page.close()
    return result


def count_calls(browser, path, frames, most):
    """Per scene, [(calls a frame, function)] of the MOST that are called most often."""
    page, _ = opened(browser, path)
    session = page.context.new_cdp_session(page)
    session.send("Profiler.enable")
    counted = {}
    for name, (share, move) in SCENES.items():
        page.evaluate(SCENE, share)
        session.send("Profiler.startPreciseCoverage", {"callCount": True})
        page.evaluate(FRAMES, {"move": move, "frames": frames})
        scripts = session.send("Profiler.takePreciseCoverage")["result"]
        session.send("Profiler.stopPreciseCoverage")
        calls = collections.Counter()
        for function in (f for script in scripts for f in script["functions"]):
            calls[function["functionName"]] += function["ranges"][0]["count"] / frames
        del calls[""]
        counted[name] = calls.most_common(most)
    page.close()
    return counted


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page")
    parser.add_argument("--frames", type=int, default=240)
    parser.add_argument("--json")
    parser.add_argument("--calls", type=int, metavar="N", help="count calls of N functions")
    options = parser.parse_args()
    path = next(filter(None, map(shutil.which, CHROMIUM)))
    with sync_playwright() as playwright:
        arguments = [*ARGUMENTS, UNOPTIMISED] if options.calls else ARGUMENTS
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        if options.calls:
            counted = count_calls(browser, options.page, options.frames, options.calls)
            browser.close()
            for name, calls in counted.items():
                print(name)
                print(*(f"{count:12,.0f}  {of}" for of, count in calls), sep="\n")
            return
        result = {
            "date": datetime.date.today().isoformat(),
            "browser": f"Chromium {browser.version}, {' '.join(ARGUMENTS[1:])}",
            "cpus": len(os.sched_getaffinity(0)),
            "cpu": cpu_name(),
            "python": platform.python_version(),
            "load": [round(value, 1) for value in os.getloadavg()[:2]],
            **measure(browser, options.page, options.frames),
        }
        browser.close()
    show(result)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


def cpu_name():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


def show(result):
    print(f"{result['browser']}; {result['cpus']} CPUs, {result['cpu']}")
    print("load of the machine before, in 1 and 5 minutes:", *result["load"])
    print(f"{result['events']:,} events, a page of {result['page_bytes'] / 1e6:.0f} MB")
    for name in ("first_paint_ms", "timeline_ms", "all_ms"):
        print(f"{name:16}{result[name]:8.0f}")
    print(
        f"{'':38}{'frame: median':>14}{'p95':>7}{'most':>7}{'script: p95':>13}{'cpu':>6}"
    )
    for name, scene in result["scenes"].items():
        frame = scene["frame_ms"]
        print(
            f"{name:38}{frame['median']:14}{frame['p95']:7}{frame['most']:7}"
            f"{scene['script_ms']['p95']:13}{scene['cpu_ms']:6}"
            f"   {scene['drawn']:,} of {scene['of']:,} drawn"
        )


if __name__ == "__main__":
    main()
