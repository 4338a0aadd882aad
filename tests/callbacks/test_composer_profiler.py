"""Composer's profiler by memlab, under a stand-in of Composer's trainer: what it writes and keeps,
and that the training notices nothing."""

import gzip
import itertools
import json
import os
import re
import stat

import pytest
from composer_standin import run
from modes import NEW


@pytest.fixture(scope="module")
def program(device_environment, tmp_path_factory):
    """program(source) runs it in a folder of its own."""
    return lambda source: run(source, device_environment, tmp_path_factory.mktemp("run"))


# ---- torch's profiler ----

PROFILER = """
class Handler:
    told = []
    run_event = close = post_close = lambda *arguments: None
    def process_chrome_json_trace_file(self, path):
        self.told.append(str(path))

# The batch of the names counts from 1: the 42nd is the second that is recorded.
handler = Handler()
profiler = Profiler(
    cyclic_schedule(active=2), handler, torch_prof_record_shapes=True,
    torch_prof_with_stack=True, torch_prof_memory_filename="rank{rank}.{batch}.html")
timestamp = Timestamp(epoch=1, batch=39)
trainer = Trainer(profiler=profiler, batches=4, run_name="awesome-training-run",
                  timestamp=timestamp).fit().close()
tell(first=dict(files=files("awesome-training-run"), uploads=trainer.logger.uploads,
                states=trainer.logger.traces, handler=handler.told,
                saved=[[t.batch, paths] for t, paths in
                       profiler._callbacks[0].saved_traces]))

# Two epochs, of which each has two windows: what stays.
def kept(keep, filename="{batch}.json", **options):
    folder = f"keep{keep}" + str(len(os.listdir()))
    torch_profiler = TorchProfiler(
        folder=folder + "/{run_name}", filename=filename, memory_filename=filename + ".html",
        num_traces_to_keep=keep, **options)
    seen = []
    trainer = Trainer(
        torch_profiler, profiler=Profiler(
            cyclic_schedule(active=1, repeat=2), **NOTHING),
        epochs=2, batches=6)
    trainer.fit(lambda trainer: seen.append(len(torch_profiler.saved_traces))).close()
    saved = [[t.batch, [os.path.relpath(p, folder) for p in paths]]
             for t, paths in torch_profiler.saved_traces]
    return dict(files=files(folder + "/r"), uploads=len(trainer.logger.uploads),
                saved=saved, most=max(seen), states=trainer.logger.traces)

tell(all=kept(-1), one=kept(1), none=kept(0), zipped=kept(1, use_gzip=True),
     same=kept(1, filename="same.json"))

# Stacks from the first batch on, without a warm-up, some frames deep.
def deep(frames, call):
    return deep(frames - 1, call) if frames else call()

def without_warmup(active):
    profiler = Profiler(cyclic_schedule(warmup=0, active=active, repeat=0),
                        torch_prof_with_stack=True, torch_prof_record_shapes=True,
                        torch_prof_folder=f"deep{active}")
    trainer = deep(9, lambda: Trainer(profiler=profiler, batches=3))
    deep(3, trainer.fit)
    trainer.close()
    return [files(f"deep{active}"), len(trainer.logger.uploads)]

tell(deep=[without_warmup(1), without_warmup(2)])

# Closed in a window, after one, and while warming up; and the tables.
records = []
class Tables(logging.Handler):
    def emit(self, record):
        records.append(record.getMessage())
log = logging.getLogger("memlab.callbacks.composer")
log.addHandler(Tables())
log.setLevel(logging.INFO)

def closed(batches, tables=None):
    profiler = Profiler(cyclic_schedule(wait=1, active=2, repeat=2), torch_prof_folder="c{run_name}")
    trainer = Trainer(profiler=profiler, batches=20, run_name=str(batches))
    trainer.batches = batches
    del records[:]
    trainer.fit().close().close()
    return dict(files=files(f"c{batches}"), records=records[:])

tell(closed={n: closed(n) for n in (0, 1, 3, 4, 5)})
log.setLevel(logging.WARNING)

# An epoch of unknown length that ends in a window; Composer's own actions.
import enum
class Theirs(enum.Enum):
    SKIP = "skip"
    WARMUP = "warmup"
    ACTIVE = "active"
plan = iter([Theirs.WARMUP, Theirs.WARMUP, Theirs.ACTIVE, Theirs.ACTIVE, Theirs.SKIP,
             Theirs.SKIP])
trainer = Trainer(profiler=Profiler(lambda state: next(plan), torch_prof_folder="u"),
                  batches=4)
trainer.state.dataloader_len = None
trainer.fit().close()
tell(unknown=[files("u"), trainer.logger.traces])

# A run that resumes another, whose names tell no batches.
class Run:
    def __init__(self, autoresume):
        torch_profiler = TorchProfiler(folder="resumed", filename="same.json",
                                       memory_filename="same.html")
        trainer = Trainer(torch_profiler, batches=6,
                          profiler=Profiler(cyclic_schedule(active=1, repeat=2), **NOTHING))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.fit().close()
        tell(**{f"resumed_{autoresume}": dict(
            files={name: os.path.getsize(f"resumed/{name}") for name in files("resumed")},
            told=[str(each.message) for each in caught],
            saved=[path.name for _, paths in torch_profiler.saved_traces for path in paths])})

Run(False)
Run(True)

# On the CPU.
trainer = Trainer(TorchProfiler(folder="cpu", memory_filename="{batch}.html"),
                  profiler=Profiler(cyclic_schedule(active=1), **NOTHING),
                  device="cpu", batches=3).fit().close()
tell(cpu=files("cpu"))
"""


@pytest.fixture(scope="module")
def profiled(program):
    return program(PROFILER)


@pytest.mark.cuda
def test_a_window_is_saved_under_its_names(profiled):
    first, folder = profiled.first, profiled.folder / "awesome-training-run"
    trace = "torch_traces/rank0.42.pt.trace.json"
    page = "torch_traces/rank0.42.html"
    assert first["files"] == [page, trace]
    assert [upload[:3] for upload in first["uploads"]] == [
        [f"awesome-training-run/{trace}", str(folder / trace), False],
        [
            "awesome-training-run/torch_memory_traces/rank0.42.pt.memory_trace.html",
            str(folder / page),
            False,
        ],
    ]
    for _, path, _, size in first["uploads"]:
        assert size == os.path.getsize(path)
        assert stat.S_IMODE(os.stat(path).st_mode) == NEW
    assert first["handler"] == [str(folder / trace)]
    assert first["saved"] == [[42, [str(folder / trace)]]]
    # At the start of each batch, what it is.
    assert first["states"] == ["WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE"]


@pytest.mark.cuda
def test_a_trace_has_what_was_asked_for(profiled):
    path = profiled.folder / "awesome-training-run/torch_traces/rank0.42.pt.trace.json"
    trace = json.loads(path.read_text())
    assert trace["global_rank"] == 0
    events = trace["traceEvents"]
    steps = {e["name"] for e in events if e["name"].startswith("ProfilerStep")}
    assert steps == {"ProfilerStep#1", "ProfilerStep#2"}
    asked = {key for event in events for key in event.get("args", {})}
    assert {"Input Dims", "Total Allocated"} <= asked
    assert any(event.get("cat") == "python_function" for event in events)
    assert (trace["with_flops"], trace["with_stack"], trace["profile_memory"]) == (1, 1, 1)


@pytest.mark.cuda
def test_a_timeline_shows_memory_by_category(profiled):
    page = (profiled.folder / "awesome-training-run/torch_traces/rank0.42.html").read_text()
    assert "awesome-training-run, batch 42" in page
    assert "max allocated" in page and "max reserved" in page
    for category in ("parameter", "gradient", "optimizer state", "activation"):
        assert category in page.lower(), category


@pytest.mark.cuda
def test_old_traces_go_when_a_new_one_is_saved(profiled):
    # Batches 2 and 4 of each epoch, of six.
    saved = [[number, [f"r/{number}.json"]] for number in (2, 4, 8, 10)]
    every = sorted(f"{n}.json{end}" for n in (2, 4, 8, 10) for end in ("", ".html"))
    assert profiled.all["files"] == every
    assert profiled.all["saved"] == saved
    assert profiled.one["files"] == ["10.json", "10.json.html"]
    assert profiled.one["saved"] == saved[-1:]
    assert profiled.one["most"] == 1
    assert profiled.none["files"] == profiled.none["saved"] == []
    assert profiled.zipped["files"] == ["10.json.gz", "10.json.html"]
    # Saved under one name: the last is not what the first's removal takes away.
    assert profiled.same["files"] == ["same.json", "same.json.html"]
    # Nothing that was uploaded is taken back, and all was.
    kept = (profiled.all, profiled.one, profiled.none, profiled.zipped, profiled.same)
    assert {each["uploads"] for each in kept} == {8}
    with gzip.open(next(profiled.folder.glob("keep1*/r/10.json.gz"))) as file:
        assert json.load(file)["traceEvents"]


@pytest.mark.cuda
def test_a_resumed_run_replaces_no_trace(profiled):
    first, resumed = profiled.resumed_False, profiled.resumed_True
    assert list(first["files"]) == ["same.html", "same.json"]
    assert list(resumed["files"]) == ["same.html", "same.json", "same_2.html", "same_2.json"]
    for name, size in first["files"].items():
        assert resumed["files"][name] == size
    # Windows of one run replace each other under one name, as they always did.
    assert first["saved"] == ["same.json"] * 2 and resumed["saved"] == ["same_2.json"] * 2
    told = [each for each in resumed["told"] if "is written beside it" in each]
    assert len(told) == 2 and told[0].endswith("same_2.json")


@pytest.mark.cuda
def test_every_epoch_is_profiled_alike(profiled):
    epoch = ["WARMUP", "RECORD_AND_SAVE", "WARMUP", "RECORD_AND_SAVE", "NONE", "NONE"]
    assert profiled.all["states"] == epoch + epoch


@pytest.mark.cuda
def test_stacks_need_no_warm_up(profiled):
    ending = "pt.trace.json"
    # The window that had begun when the trainer closed has no batch, and is not saved.
    assert profiled.deep == [
        [[f"rank0.{batch}.{ending}" for batch in (1, 2, 3)], 3],
        [[f"rank0.{batch}.{ending}" for batch in (2, 3)], 2],
    ]
    for path in profiled.folder.glob("deep*/*.json"):
        assert json.loads(path.read_text())["traceEvents"]


@pytest.mark.cuda
def test_a_window_is_saved_when_the_trainer_closes_in_it(profiled):
    # Batch 1 waits, 2 warms up, 3 and 4 are recorded, and so on.
    names = {n: found["files"] for n, found in profiled.closed.items()}
    assert names == {
        "0": [],
        "1": [],
        "3": ["rank0.3.pt.trace.json"],
        "4": ["rank0.4.pt.trace.json"],
        "5": ["rank0.4.pt.trace.json"],
    }
    # By CPU time and memory, by the GPU's.
    count = {n: len(tables(found["records"])) for n, found in profiled.closed.items()}
    assert count == {"0": 0, "1": 0, "3": 4, "4": 4, "5": 0}
    # And as Composer, two of each window that ended, saved under way too.
    count = {n: len(found["records"]) for n, found in profiled.closed.items()}
    assert count == {"0": 0, "1": 0, "3": 6, "4": 6, "5": 2}


def tables(records):
    """Of what was logged; others are a line each."""
    return [record for record in records if "\n" in record]


UNITS = {"us": 1, "ms": 1e3, "s": 1e6, "b": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20}


def column(table, name):
    """The figures of a column of a table of torch's, as they stand below each other."""
    rule, heads, _, *rows = table.splitlines()
    # Columns are as wide as the rule's dashes.
    ends = list(itertools.accumulate(len(dashes) + 2 for dashes in rule.split()))
    spans = list(zip([0, *ends], ends, strict=False))
    (span,) = [slice(*span) for span in spans if heads[slice(*span)].strip() == name]
    cells = [row[span].strip() for row in itertools.takewhile(lambda r: r[0] != "-", rows)]
    assert 0 < len(cells) <= 20
    found = [re.fullmatch(r"(-?[\d.]+) ?(\w+)", cell).groups() for cell in cells]
    return [float(number) * UNITS[unit] for number, unit in found]


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("number", "name"), [(0, "CPU total"), (1, "Self CPU Mem"), (3, "Self CUDA Mem")]
)
def test_tables_of_the_last_window_are_sorted(profiled, number, name):
    figures = column(tables(profiled.closed["4"]["records"])[number], name)
    assert figures == sorted(figures, reverse=True)
    assert name == "Self CPU Mem" or figures[0] > figures[-1]


TABLES = """
records = []
class Tables(logging.Handler):
    def emit(self, record):
        records.append(record.getMessage())
log = logging.getLogger("memlab.callbacks.composer")
log.addHandler(Tables())
log.setLevel(logging.INFO)

def by_batch(state):
    # Over the end of an epoch of four batches.
    names = {2: "WARMUP", 3: "ACTIVE", 4: "ACTIVE", 5: "ACTIVE_AND_SAVE"}
    return ProfilerAction[names.get(state.timestamp.batch, "SKIP")]

letter = {"NONE": "S", "WARMUP": "W", "RECORD": "A", "RECORD_AND_SAVE": "!"}
logged = []
for number, (options, epochs, batches, fits) in enumerate(CASES):
    schedule = by_batch if options is None else cyclic_schedule(**options)
    profiler = Profiler(schedule, torch_prof_folder=f"f{number}")
    trainer = Trainer(profiler=profiler, epochs=epochs, batches=batches)
    del records[:]
    for _ in range(fits):
        trainer.fit()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.close()
    logged.append([
        "".join(letter[state] for state in trainer.logger.traces),
        records[:],
        sorted(int(name.split(".")[1]) for name in files(f"f{number}")),
        [str(w.message) for w in said if "nothing was recorded" in str(w.message)]])
tell(logged=logged)
"""

# The schedule's arguments, epochs, batches of each, calls of fit(); worked out by hand:
# what each batch was, batches of the window that the tables show, or None where there are
# no tables, and after which batches a window was saved.
WITH_TABLES = [
    # Composer's default.
    (({}, 1, 5, 1), "WAAA!", 4, [5]),
    (({}, 1, 8, 1), "WAAA!SSS", 4, [5]),
    (({}, 3, 5, 1), "WAAA!" * 3, 4, [5, 10, 15]),
    # The epoch ends a window, or the warm-up.
    (({}, 2, 3, 1), "WA!WA!", 2, [3, 6]),
    (({}, 2, 1, 1), "WW", None, []),
    (({}, 1, 0, 1), "", None, []),
    (({"skip_first": 2}, 1, 7, 1), "SSWAAA!", 4, [7]),
    (({"skip_first": 2}, 2, 8, 1), "SSWAAA!S" * 2, 4, [7, 15]),
    (({"skip_first": 9}, 1, 5, 1), "SSSSS", None, []),
    (({"repeat": 2, "active": 2}, 1, 6, 1), "WA!WA!", 2, [3, 6]),
    (({"repeat": 2, "active": 2}, 2, 8, 1), "WA!WA!SS" * 2, 2, [3, 6, 11, 14]),
    (({"repeat": 2, "active": 3}, 1, 6, 1), "WAA!W!", 1, [4, 6]),
    # At the close a batch warms up, for which torch gave up the last window.
    (({"repeat": 2, "active": 3}, 1, 5, 1), "WAA!W", None, [4]),
    (({"repeat": 0, "active": 2}, 2, 6, 1), "WA!WA!" * 2, 2, [3, 6, 9, 12]),
    (({"repeat": 0, "active": 2}, 2, 4, 1), "WA!W" * 2, None, [3, 7]),
    (({"repeat": 0, "active": 2}, 2, 5, 1), "WA!W!" * 2, 1, [3, 5, 8, 10]),
    (({"repeat": 0, "warmup": 0, "active": 1}, 2, 2, 1), "!!!!", 1, [1, 2, 3, 4]),
    (({"repeat": 0, "warmup": 0, "active": 2}, 2, 2, 1), "A!A!", 2, [2, 4]),
    (({"wait": 1, "active": 1}, 2, 3, 1), "SW!SW!", 1, [3, 6]),
    # Another call of fit() goes on where the one before seemed the last.
    (({}, 1, 5, 2), "WAAA!" * 2, 4, [5, 10]),
    (({"wait": 1, "active": 1}, 1, 2, 2), "SWSW", None, []),
    # A window over the end of an epoch goes on.
    ((None, 2, 4, 1), "SSWAA!SS", 3, [6]),
]


@pytest.fixture(scope="module")
def with_tables(program):
    return program(f"CASES = {[case for case, *_ in WITH_TABLES]!r}\n{TABLES}").logged


def batches_in(table):
    """How many batches a table of torch's is of: calls of what torch names a step."""
    _, heads, _, *rows = table.splitlines()
    ends = heads.index("# of Calls") + len("# of Calls")
    # A GPU that runs kernels has a row of its own for what it did in the steps.
    steps = [row for row in rows if row.split()[0] == "ProfilerStep*"]
    (batches,) = {int(row[:ends].split()[-1]) for row in steps}
    return batches


@pytest.mark.cuda
@pytest.mark.parametrize("number", range(len(WITH_TABLES)))
def test_tables_are_of_the_last_window(with_tables, number):
    case, states, steps, saved = WITH_TABLES[number]
    found = with_tables[number]
    assert found[0] == states, case
    # By CPU time and memory, by the GPU's.
    shown = [batches_in(table) for table in tables(found[1])]
    assert shown == [steps] * (4 if steps else 0), case
    # One of each window's trace, one of its memory timeline.
    assert len(found[1]) == 2 * len(saved) + len(shown), case
    assert found[2] == saved, case
    # A training without a window is told.
    told = [f"in {len(states)} batch" in text for text in found[3]]
    assert told == ([True] if states and not saved else []), case


@pytest.mark.cuda
def test_composers_records_at_its_default_schedule(with_tables):
    """Composer's on_trace_ready logs two, and its close() four tables: by cpu_time_total,
    self_cpu_memory_usage, cuda_time_total and self_cuda_memory_usage."""
    trace, timeline, *four = with_tables[0][1]
    assert trace.startswith("writing torch's trace") and trace.endswith(".5.pt.trace.json")
    assert timeline.endswith("memory_filename is None")
    assert four == tables(with_tables[0][1]) and len(four) == 4


@pytest.mark.cuda
def test_a_window_that_an_epoch_cuts_short_is_saved(profiled):
    assert profiled.unknown == [
        ["rank0.3.pt.trace.json"],
        ["WARMUP", "RECORD", "RECORD", "NONE"],
    ]


@pytest.mark.cuda
def test_a_model_on_the_cpu_is_profiled_too(profiled):
    assert profiled.cpu == ["2.html", "rank0.2.pt.trace.json"]
    page = (profiled.folder / "cpu/2.html").read_text()
    # The parameters were there before memlab came.
    assert "gradient" in page.lower() and "max allocated" in page


@pytest.mark.cuda
def test_profiling_says_nothing(profiled):
    """No warning of memlab's, nor of a call that torch has deprecated; but that of a trainer
    that closed in its warm-up, of which nothing is there."""
    said = [line for line in profiled.err.splitlines() if "memlab: " in line
            and "is not empty" not in line]  # fmt: skip
    (told,) = said
    assert "nothing was recorded: the schedule has no window in 1 batch" in told
    assert "eprecat" not in profiled.err


# ---- What goes wrong in a run ----

FAILURES = """
import pathlib, shutil

def run(name, break_it=lambda trainer: None, schedule=None, refuses=None, **options):
    torch_profiler = TorchProfiler(
        folder=name, filename="{batch}.json", memory_filename="{batch}.html", **options)
    profiler = Profiler(schedule or cyclic_schedule(active=1, repeat=0), **NOTHING)
    trainer = Trainer(torch_profiler, profiler=profiler, batches=5)
    trainer.logger.refuses = refuses
    def at_batch_end(trainer):
        if trainer.state.timestamp.batch == 2:
            break_it(trainer)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.fit(at_batch_end).close()
    said = [str(w.message) for w in said if str(w.message).startswith("memlab: ")]
    return dict(files=files(name), saved=len(torch_profiler.saved_traces), said=said)

def no_folder(trainer):
    shutil.rmtree("away")
    pathlib.Path("away").write_text("in the way")

def schedule(state):
    if state.timestamp.batch == 3:
        raise KeyError("of the program")
    return ProfilerAction.ACTIVE_AND_SAVE

tell(away=run("away", no_folder),
     schedule=run("schedule", schedule=schedule),
     exists=run("exists", refuses=FileExistsError("PASSWORD"), num_traces_to_keep=0),
     refused=run("refused", refuses=ConnectionError("PASSWORD"), num_traces_to_keep=1))

with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
    tell(other=run("other"))
tell(theirs=len(theirs.events()))

# A Profiler's own TorchProfiler, and one among the callbacks.
among = TorchProfiler(folder="among", filename="{batch}.json", memory_filename="{batch}.html")
both = Profiler(cyclic_schedule(active=1), torch_prof_folder="its")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    Trainer(among, profiler=both, batches=3).fit().close()
tell(both=[files("among"), files("its"),
           [str(w.message) for w in said if str(w.message).startswith("memlab: ")]])

# A full disk: torch prints it, and its unfinished file stays.
class Full(torch.profiler.profile):
    def export_chrome_trace(self, path):
        pathlib.Path(path + ".tmp").write_text("{")

torch.profiler.profile, real = Full, torch.profiler.profile
found = run("full")
tell(full={**found, "files": sorted(os.listdir("full"))})
torch.profiler.profile = real

# torch crashes where what it could not prepare is begun.
whole = torch.autograd.profiler.profile
real, whole._prepare_trace = whole._prepare_trace, lambda self: 1 / 0
tell(unprepared=run("unprepared"))
whole._prepare_trace = real

# A trainer that nobody closed, and the next with the same callback.
torch_profiler = TorchProfiler(filename="{batch}.json")
for name in "unclosed", "next":
    profiler = Profiler(cyclic_schedule(warmup=0, active=4), **NOTHING)
    trainer = Trainer(torch_profiler, profiler=profiler, run_name=name)
    try:
        trainer.fit(lambda trainer: 1 / (trainer.state.timestamp.batch - 2))
    except ZeroDivisionError:
        pass
trainer.close()
tell(unclosed=[files("unclosed"), files("next")])

# What warnings become errors in.
warnings.simplefilter("error")
trainer = Trainer(OOMObserver(folder="errors"))
trainer.logger.refuses = OSError("no network")
try:
    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    tell(errors=len(files("errors")))
trainer.close()
"""


@pytest.fixture(scope="module")
def failed(program):
    return program(FAILURES)


@pytest.mark.cuda
def test_the_training_goes_on_where_files_cannot_be_written(failed):
    away = failed.away
    assert (away["files"], away["saved"]) == ([], 1)
    trace, page = away["said"]
    assert "a trace was not written" in trace and "away" in trace
    assert "a memory timeline was not written" in page


@pytest.mark.cuda
def test_a_trace_that_torch_could_not_finish_is_no_file(failed):
    assert failed.full["files"] == ["2.html", "4.html"]
    (said,) = failed.full["said"]
    assert "a trace was not written: OSError: torch could not write" in said
    assert "full/2.json, as on a full disk" in said


@pytest.mark.cuda
def test_of_two_torch_profilers_one_records_and_the_other_says_what_to_do(failed):
    among, its, (said,) = failed.both
    assert (among, its) == (["2.html", "2.json"], [])
    assert "another TorchProfiler records them" in said
    assert "torch_prof_profile_memory=False and torch_prof_with_flops=False" in said


@pytest.mark.cuda
def test_the_training_goes_on_where_the_schedule_fails(failed):
    assert failed.schedule["files"] == ["1.html", "1.json", "2.html", "2.json"]
    (said,) = failed.schedule["said"]
    assert "KeyError: 'of the program'" in said and "off for the rest" in said


@pytest.mark.cuda
def test_what_was_not_uploaded_is_not_removed(failed):
    for found, remedy, saved in ((failed.exists, "overwrite=True", 0),
                                 (failed.refused, "ConnectionError", 1)):  # fmt: skip
        assert found["files"] == ["2.html", "2.json", "4.html", "4.json"]
        assert found["saved"] == saved
        (said,) = found["said"]
        assert remedy in said and "PASSWORD" not in said


@pytest.mark.cuda
def test_another_torch_profiler_keeps_its_trace(failed):
    assert failed.other["files"] == []
    assert "another torch profiler" in failed.other["said"][0]
    assert failed.theirs > 100


@pytest.mark.cuda
def test_warnings_that_are_errors_do_not_reach_the_training(failed):
    assert failed.errors == 5


@pytest.mark.cuda
def test_a_profiler_that_cannot_be_prepared_is_off(failed):
    assert failed.unprepared["files"] == []
    (said,) = failed.unprepared["said"]
    assert "ZeroDivisionError" in said and "off for the rest" in said


@pytest.mark.cuda
def test_the_next_trainer_has_the_window_of_an_unclosed_one_saved(failed):
    assert failed.unclosed == [["torch_traces/2.json"], ["torch_traces/2.json"]]
