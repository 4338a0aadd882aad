"""Reports as text, in colour, as Markdown and as JSON: their words and their figures."""

import gzip
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pseudo_terminal import in_a_terminal
from report_keys import undocumented
from test_report import MIB, free, recording_of, three_steps

import memlab
from memlab import _core
from memlab._cli import main as _cli
from memlab._compare import merge
from memlab._recording import commands
from memlab._report import markdown, parts, peaks, report
from memlab._text import wording

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "memlab" / "report.schema.json").read_text())


def run(*args):
    """(exit status, stdout, stderr) of memlab ARGS, in this process."""
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = _cli.main([str(arg) for arg in args])
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    path = tmp_path_factory.mktemp("steps") / "run.pickle"
    three_steps().write_pickle(path, True)
    return path


def frame(file, line, name):
    return {"filename": file, "line": line, "name": name}


def snapshot_file(path, *devices):
    """A pickle as torch writes it; of each device allocations of (bytes, frames), each in
    a segment that it fills."""
    segments, traces = [], []
    for device, allocations in enumerate(devices):
        traces.append([])
        for number, (size, frames) in enumerate(allocations):
            block = {"size": size, "requested_size": size, "address": number << 30,
                     "state": "active_allocated", "frames": frames}
            segments.append(
                {"device": device, "address": number << 30, "total_size": size,
                 "allocated_size": size, "active_size": size, "requested_size": size,
                 "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                 "is_expandable": False, "frames": frames, "blocks": [block]}
            )
            traces[-1] += [
                {"action": action, "addr": number << 30, "size": size, "stream": 0,
                 "time_us": 1000 + number, "frames": frames}
                for action in ("segment_alloc", "alloc")
            ]
    content = {"segments": segments, "device_traces": traces}
    path.write_bytes(pickle.dumps(content, protocol=4))
    return path


@pytest.fixture(scope="module")
def stacks(tmp_path_factory):
    """1 MiB of f called by main, 512 KiB of g, and 25 frames deep 256 KiB."""
    main = frame("/x/train.py", 9, "main")
    deep = [frame("/x/deep.py", n, f"at{n}") for n in range(25)]
    return snapshot_file(
        tmp_path_factory.mktemp("stacks") / "run.pickle",
        [
            (MIB, [frame("/x/model.py", 3, "f"), main]),
            (MIB // 2, [frame("/x/model.py", 7, "g")]),
            (MIB // 4, deep),
        ],
    )


# ---- Instants ----


@pytest.mark.parametrize(
    "at, said",
    [
        ("peak", "Peak on script:0: 7.00 MiB allocated (7340032 bytes)\n"),
        ("0", "Peak of step 0 on script:0: 5.00 MiB allocated (5242880 bytes)\n"
         "  Then: step 0\n  71.4 % of the peak of the recording, 7.00 MiB\n"),
        ("step:2", "Peak of step 2 on script:0: 2.00 MiB allocated (2097152 bytes)\n"
         "  Then: step 2\n"),
        ("start", "Before the first event on script:0: 0 B allocated (0 bytes)\n"),
        ("end", "At the end on script:0: 2.00 MiB allocated (2097664 bytes)\n"),
        ("event:1", "After event 1 on script:0: 5.00 MiB allocated (5242880 bytes)\n"),
        ("2.5ms", "2.5 ms after the first event, on script:0: 0 B allocated"),
        ("0.005s", "5 ms after the first event, on script:0: 7.00 MiB allocated"),
        ("5001us", "5.001 ms after the first event, on script:0: 7.00 MiB allocated"),
    ],
)
def test_the_report_of_an_instant(steps, at, said):
    status, out, err = run("report", steps, "--at", at)
    assert (status, err) == (0, "")
    assert out.startswith(said)
    assert ("Allocator at the peak" if at == "peak" else "Allocator then") in out
    assert ("Line by line" in out) == (at == "peak")


def test_a_step_in_which_a_device_was_idle(tmp_path):
    """Device 1 has an allocation before the first step ends, devices 2 and 3 nothing."""
    script = _core.Script()
    script.reset()
    time = iter(range(1_000_000_000, 1_010_000_000, 1_000_000))
    path = tmp_path / "idle.mlab"
    with memlab.MemorySnapshot(source="script", file=path) as snapshot:
        script.emit("alloc", 1 << 40, MIB, device=1, time=next(time))
        for i in range(3):
            script.emit("alloc", (1 << 40) + i * MIB, MIB, time=next(time))
            script.emit("snapshot", 0, 0, time=next(time))
            memlab.step()
    script.reset()
    status, out, err = run("report", path, "--at", "step:1")
    assert (status, err) == (0, "")
    assert re.findall(r"Peak of step 1 on script:(\d): .*\((\d+) bytes\)", out) == [
        ("0", str(2 * MIB)), ("1", str(MIB)), ("2", "0"), ("3", "0"),
    ]
    assert out.count("Then: step") == out.count("Then: step 1") == 1
    # No heading stands above nothing.
    assert out.count("By category") == 2
    status, _, err = run("report", path, "--at", "step:9", "--device", "1")
    assert status == 1 and "no event in step 9: there are steps 0 to 3" in err
    assert snapshot.peak(1, at="step:1")["peak"]["allocated_bytes"] == MIB


def test_the_api_takes_instants_too():
    script = _core.Script()
    script.reset()
    with memlab.MemorySnapshot(source="script") as snapshot:
        script.emit("segment_alloc", 1 << 40, 16 * MIB)
        script.emit("alloc", 1 << 40, 3 * MIB)
        for part in free(0, 3 * MIB):
            script.emit(part[0], 1 << 40, part[2])
        script.emit("alloc", 1 << 40, MIB)
    script.reset()
    assert snapshot.peak()["peak"]["allocated_bytes"] == 3 * MIB
    assert snapshot.peak(at="end")["peak"]["allocated_bytes"] == MIB
    assert snapshot.peak(0, at="event:0")["peak"]["allocated_bytes"] == 0
    text = snapshot.summary(at="end", by=["size"])
    assert text == (
        "At the end on script:0: 1.00 MiB allocated (1048576 bytes)\n"
        "  33.3 % of the peak of the recording, 3.00 MiB\n"
        "\n"
        "By size of the blocks\n"
        "  1.00 MiB  100.0 %  1 block  1 MiB to below 4 MiB\n"
    )
    with pytest.raises(memlab.Error, match="no event 9"):
        snapshot.summary(at="event:9")
    for wrong in ({"at": "soon"}, {"by": ["colour"]}, {"by": "colour"}):
        with pytest.raises(ValueError):
            snapshot.summary(**wrong)


# ---- Tables ----


def test_only_the_tables_that_are_asked_for(stacks):
    status, out, _ = run("report", stacks, "--by", "stack", "--by", "size", "--lines", 2)
    assert status == 0
    assert out == (
        "Peak on cuda:0: 1.75 MiB allocated (1835008 bytes)\n"
        "\n"
        "By stack\n"
        "  1.00 MiB   57.1 %  1 block  /x/model.py:3 f\n"
        "                              /x/train.py:9 main\n"
        "   512 KiB   28.6 %  1 block  /x/model.py:7 g\n"
        "  ... and 1 more stack with 256 KiB\n"
        "\n"
        "By size of the blocks\n"
        "  1.00 MiB   57.1 %   1 block  1 MiB to below 4 MiB\n"
        "   768 KiB   42.9 %  2 blocks  256 KiB to below 1 MiB\n"
    )
    out = run("report", stacks, "--by", "stack")[1]
    assert "/x/deep.py:19 at19\n" in out and "at20" not in out
    assert "... and 5 more frames\n" in out
    out = run("report", stacks, "--by", "module", "--by", "category", "--by", "line")[1]
    titles = [line for line in out.splitlines() if line.startswith("By ")]
    assert titles == ["By module", "By category", "By line"]


@pytest.mark.parametrize("at", ["peak", "end", "event:400"])
def test_figures_are_those_of_the_answer(at):
    data = gzip.decompress((ROOT / "tests/data/streams_expandable.pickle.gz").read_bytes())
    recording = _core.Recording.from_bytes(data)
    answer = peaks.peak(recording, 0, at)
    for name, key in (("line", "by_line"), ("module", "by_module"), ("size", "by_size"),
                      ("stack", "by_stack")):
        choice = parts.choose(at, [name], lines=10_000)
        (section,) = parts.sections(recording, [0], choice)
        (table,) = [p for p in section if isinstance(p, parts.Table)]
        assert list(table.counts) == [group["bytes"] for group in answer[key]]
        assert sum(table.counts) == table.whole == answer["peak"]["allocated_bytes"]


# ---- Which devices ----


def test_devices_and_ranks_are_chosen(tmp_path):
    def two(path):
        return snapshot_file(path, *([(n * MIB, [])] for n in (1, 2)))

    paths = [two(tmp_path / f"rank{rank}.pickle") for rank in (0, 1)]
    text = run("report", paths[0])[1]
    # Of two devices the first screen tells the fuller, and the other in a line.
    assert text.startswith("Peak on cuda:1: 2.00 MiB allocated")
    assert "\n  cuda:0: 1.00 MiB allocated" in text
    merged = tmp_path / "all.pickle"
    merge.merge(map(str, paths)).write_pickle(merged, True)

    def names(*args):
        text = run("report", merged, *args)[1]
        return re.findall(r"^Peak on (.*?): .* \(\d+ bytes\)$", text, re.M)

    assert names("--full") == ["rank 0 (cuda:0)", "rank 0 (cuda:1)", "rank 1 (cuda:0)",
                       "rank 1 (cuda:1)"]
    assert names("--rank", 1) == ["rank 1 (cuda:0)", "rank 1 (cuda:1)"]
    assert names("--device", 1) == ["rank 0 (cuda:1)", "rank 1 (cuda:1)"]
    assert names("--device", 1, "--rank", 0) == ["rank 0 (cuda:1)"]
    answer = json.loads(run("report", merged, "--rank", 1, "--json")[1])
    assert [device["device"] for device in answer["devices"]] == [2, 3]
    for args, said in (
        (["--rank", 2], "the recording has no memory of rank 2: it has 0-1"),
        (["--device", 2], "the recording has no memory of device 2: it has 0-1"),
    ):
        assert run("report", merged, *args) == (1, "", f"memlab: {said}\n")
    status, _, err = run("report", merged, "--at", "event:0")
    assert status == 2 and "--at event:0 is of one device" in err


@pytest.mark.parametrize(
    "args, status, said",
    [
        (["--at", "noon"], 2, "'noon' is not an instant: peak, start, end, step:12"),
        (["--at", "7"], 1, "script:0: no event in step 7: there are steps 0 to 3"),
        (["--at", "event:9"], 1, "no event 9: script:0 has events 0 to 8"),
        (["--at", "1s"], 1, "script:0: the recording ends 0.010000 s after its first event"),
        (["--by", "colour"], 2, "invalid choice: 'colour'"),
        (["--by", "line", "-f", "f"], 2, "-f is for the peak, without --by"),
        (["--at", "end", "-f", "f"], 2, "-f is for the peak, without --by"),
        (["--json", "--markdown"], 2, "not allowed with argument --json"),
        (["--json", "--by", "line"], 2, "--json has all tables: leave out --by"),
        (["--device", "9"], 1, "the recording has no memory of device 9: it has 0"),
        (["--device", "cuda:0"], 2, "'cuda:0' is not a GPU index"),
        (["--rank", "0"], 1, "no memory of rank 0"),
    ],
)
def test_what_there_is_not_is_refused(steps, args, status, said):
    found, out, err = run("report", steps, *args)
    assert (found, out) == (status, "")
    assert said in err


# ---- In colour ----


@pytest.mark.parametrize("width", [24, 40, 60, 79, 200])
def test_in_colour_nothing_is_left_out(stacks, width):
    pytest.importorskip("rich", reason="rich is not installed")
    args = ["report", stacks, "--by", "stack", "--by", "category", "--by", "line"]
    piped = run(*args)[1]
    env = {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    shown = in_a_terminal(width, *args, env=env)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert bare != shown
    assert all(len(line) <= width for line in bare.splitlines())
    assert ("█" in bare) == (width >= 60)
    bare = re.sub("[▏▎▍▌▋▊▉█]", "", bare)
    assert "".join(bare.split()) == "".join(piped.split())


def test_names_steer_no_terminal(tmp_path):
    pytest.importorskip("rich", reason="rich is not installed")
    path = hostile_file(tmp_path / "run.pickle", HOSTILE)
    shown = in_a_terminal(4000, "report", path, "--by", "line", "--lines", 99,
                          env={"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"})
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert all(c.isprintable() or c == "\n" for c in bare)
    for name in HOSTILE:
        assert wording.escape(f"/{name}:5 {name}") in bare
    # Colours are those of the columns before the names.
    assert not re.search(r"1 block.*\x1b\[\d*3[0-9]", shown)


def test_a_bar_is_as_long_as_its_share(stacks):
    pytest.importorskip("rich", reason="rich is not installed")
    from memlab._report.rich import _bar

    assert _bar(1, "utf-8") == "█" * 12
    assert _bar(0.5, "utf-8") == "█" * 6
    assert _bar(1 / 96, "utf-8") == "▏"
    assert _bar(0, "utf-8") == ""
    assert _bar(0.55, "utf-8") == "█" * 6 + "▋"
    assert _bar(0.5, "ascii") == _bar(0.5, "no such") == "#" * 6
    # What cannot be, of a file whose sums do not fit.
    assert _bar(7.0, "utf-8") == "█" * 12


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"PYTHONPATH": "broken"}])
def test_without_colour_it_is_the_plain_text(stacks, tmp_path, env):
    """Where it is not wanted, and where rich is missing."""
    if "PYTHONPATH" in env:
        (tmp_path / "rich").mkdir()
        (tmp_path / "rich" / "__init__.py").write_text("raise ImportError('no rich')")
        env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    args = ["report", stacks]
    assert in_a_terminal(300, *args, env=env) == run(*args)[1]


# ---- Markdown ----

HOSTILE = [
    "a|b\\|c\\", "`x` ``y```", "<img src=x onerror=alert(1)>", "@octocat #1 GH-1",
    "[a](http://evil.example) ![b](x)", "www.evil.example http://e.vil/a?b=c&amp;d",
    "*a* _b_ __c__ ~~d~~ $e$", "</code></details><script>", "&lt;&#60;&copy;",
    "\n# head\n- x\n\n|---|\n", "\x1b[31m\u202eevil", "x" * 1000, "<!-- ", "| --- | a",
    "1. a", "    code", "é漢😀", "[bold red]x[/] [link=http://evil]y[/]", ":smile:",
]


def rendered(text):
    """TEXT as GitHub renders it, near enough: GFM tables and the HTML in them."""
    markdown_it = pytest.importorskip("markdown_it", reason="comes with rich")
    return markdown_it.MarkdownIt("gfm-like", {"linkify": False}).render(text)


def hostile_file(path, names):
    frames = [[frame(f"/{name}", 5, name)] for name in names]
    return snapshot_file(path, [(MIB, f) for f in frames])


def cells(html):
    import html as html_module

    rows = re.findall(r"<tr>(.*?)</tr>", html, re.S)
    return [
        [html_module.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)]
        for row in rows
    ]


def test_markdown_shows_any_name_as_it_is(tmp_path):
    path = hostile_file(tmp_path / "run.pickle", HOSTILE)
    text = run("report", path, "--markdown", "--by", "line", "--lines", 99)[1]
    rows = [row for row in cells(rendered(text)) if row]
    assert len(rows) == len(HOSTILE) and all(len(row) == 5 for row in rows)
    found = {row[4] for row in rows}
    for name in HOSTILE:
        shown = wording.escape(f"/{name}:5 {name}")
        shown = shown if len(shown) <= 400 else shown[:400] + " ..."
        assert f"<code>{shown}</code>" in found
    html = rendered(text)
    assert set(re.findall(r"<(\w+)", html)) == {
        "h3", "h4", "code", "table", "thead", "tbody", "tr", "th", "td"
    }
    # Nobody is told: outside of code there is nothing of theirs.
    outside = re.sub(r"<code>.*?</code>", "", html, flags=re.S)
    assert "@" not in outside and "evil" not in outside and "#1" not in outside


def test_markdown_as_a_whole(stacks):
    text = run("report", stacks, "--markdown", "--at", "peak")[1]
    assert text.startswith(
        "### Peak on <code>cuda&#58;0</code>: 1.75 MiB allocated (1835008 bytes)\n\n"
        "#### By category\n\n"
        "| bytes | share | category |\n"
        "| ---: | ---: | --- |\n"
    )
    assert (
        "| 1.00 MiB | 57.1 % | 1 block | unknown | "
        "<code>/x/model&#46;py&#58;3 f</code> |\n"
    ) in text
    assert text.count("<details><summary>") == text.count("</details>") == 3
    assert "\n\n\n" not in text and text.endswith("</details>\n")
    html = rendered(text)
    assert html.count("<table>") == 4 and html.count("<pre>") == 1


def test_markdown_has_room_in_a_comment(tmp_path):
    names = [f"<{n:05}>" + "|" * 300 for n in range(600)]
    path = hostile_file(tmp_path / "run.pickle", names)
    every = ["--lines", 600]
    for args in (every, ["--by", "stack", "--by", "line", *every], ["--full"]):
        text = run("report", path, "--markdown", *args)[1]
        assert len(text) <= markdown.MOST_CHARACTERS < 65_536
        cut = "The rest is left out: it has no room in a comment.\n"
        assert text.endswith(cut) == ("--lines" in args)
        assert text.count("<details>") == text.count("</details>")
        assert text.count("```") % 2 == 0
    assert len(text) > 1000


def test_a_listing_ends_where_it_ends():
    lines = ["a", "```", "````text", "b ````` c"]
    heading = parts.Heading("Lines", detail=True)
    text = markdown.markdown(
        ["note <b> @x"], [[heading, parts.Listing(lines)]]
    )
    assert text == (
        "> note &#60;b&#62; &#64;x\n\n<details><summary>Lines</summary>\n\n"
        "``````text\na\n```\n````text\nb ````` c\n``````\n\n</details>\n"
    )


# ---- JSON ----


def violations(value, schema, where="answer"):
    """Where VALUE is not what SCHEMA says, of the words that the schema uses."""
    used = {"$ref", "anyOf", "type", "items", "additionalProperties", "properties",
            "required", "description", "$schema", "title", "$defs"}
    assert schema.keys() <= used
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        yield from violations(value, SCHEMA["$defs"][name], where)
    if "anyOf" in schema:
        ways = [list(violations(value, way, where)) for way in schema["anyOf"]]
        if all(ways):
            yield from min(ways, key=len)
    kinds = {"object": dict, "array": list, "string": str, "integer": int,
             "number": (int, float), "boolean": bool, "null": type(None)}
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind])
                 or isinstance(value, bool) and kind != "boolean"):
        yield f"{where} is {value!r}, no {kind}"
        return
    if kind == "array":
        for number, part in enumerate(value):
            yield from violations(part, schema["items"], f"{where}[{number}]")
    if kind == "object":
        for key in schema.get("required", ()):
            if key not in value:
                yield f"{where} has no {key!r}"
        for key, part in value.items():
            of = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if of is not None:
                yield from violations(part, of, f"{where}.{key}")


@pytest.mark.parametrize("at", ["peak", "end", "step:0"])
@pytest.mark.parametrize("name", ["gpt2_oom", "streams_expandable"])
def test_the_json_is_as_its_schema_says(name, at):
    file = ROOT / "tests" / "data" / f"{name}.pickle.gz"
    answer = json.loads(run("report", file, "--json", "--at", at)[1])
    assert list(violations(answer, SCHEMA)) == []
    assert answer["at"] == at and undocumented(answer) == set()
    assert bool(answer["devices"][0]["lines"]) == (at == "peak")
    # The check can fail.
    answer["devices"][0]["by_line"][0]["bytes"] = True
    del answer["devices"][0]["overhead"]["segments"]
    answer["ranks"] = None
    assert list(violations(answer, SCHEMA)) == [
        "answer.ranks is None, no array",
        "answer.devices[0].by_line[0].bytes is True, no integer",
        "answer.devices[0].overhead has no 'segments'",
    ]


def test_the_schema_is_that_of_the_shapes():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "report_schema.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, "run tools/report_schema.py"


def test_the_schema_names_the_categories():
    for name in ("DeviceReport", "PeakLine", "Oom"):
        categories = SCHEMA["$defs"][name]["properties"]["by_category"]
        assert tuple(categories["properties"]) == memlab.CATEGORIES
        assert categories["additionalProperties"] == {"type": "integer"}


def test_a_peak_before_the_events_that_were_kept_is_told_at_once():
    """Not in the full report alone: the peak that is shown is a lower one."""
    script = _core.Script()
    script.reset()
    with memlab.MemorySnapshot(source="script", max_entries=30) as snapshot:
        script.emit("segment_alloc", MIB, 64 * MIB)
        script.emit("alloc", MIB, 40 * MIB)
        script.emit("free_requested", MIB, 40 * MIB)
        script.emit("free_completed", MIB, 40 * MIB)
        for _ in range(30):
            script.emit("alloc", MIB, 2 * MIB)
            script.emit("free_requested", MIB, 2 * MIB)
            script.emit("free_completed", MIB, 2 * MIB)
    first = " ".join(str(commands.report(snapshot)).split())
    assert first.startswith("Peak on script:0: 2.00 MiB allocated")
    assert "The true peak, 40.0 MiB, came before the events that were kept" in first


def test_a_file_cut_before_its_events_does_not_say_that_there_were_none(tmp_path):
    path, cut = tmp_path / "whole.mlab", tmp_path / "cut.mlab"
    script = _core.Script()
    script.reset()
    with memlab.MemorySnapshot(source="script", file=path):
        script.emit("segment_alloc", MIB, 64 * MIB)
        for number in range(100):
            script.emit("alloc", MIB * (number + 1), 4096)
    whole, told = path.read_bytes(), []
    for part in range(1, 16):
        cut.write_bytes(whole[: len(whole) * part // 16])
        told.append(run("report", str(cut))[1])
    assert any("lost every event: what was allocated cannot be told" in out for out in told)
    assert not any("No memory was allocated" in out for out in told)


def test_a_recording_without_memory():
    recording = recording_of()
    assert "Peak on script:0: 0 B" in report.text(recording)
    title, *more = report.text(recording, 0, at="end").split("\n")
    assert title == "At the end on script:0: 0 B allocated (0 bytes)"
    assert "peak" not in more[0]
    script = _core.Script()
    script.reset()
    with memlab.MemorySnapshot(source="script") as snapshot:
        pass
    assert report.text(snapshot.data()) == "No memory was allocated while recording.\n"
