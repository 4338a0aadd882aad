"""The answer of memlab.fit and `memlab fit`.

Owns the runs on the phantom device, their order, and the meaning of the figures.
run.py has the processes, vary.py the search for the largest value, text.py the words.
"""

from __future__ import annotations

import math
import os
import statistics

from memlab import phantom
from memlab._errors import Error, check_count
from memlab._files import load
from memlab._fit import vary as _fit_vary
from memlab._fit.run import BYTES, Command, Runs, ranks_of
from memlab._run import made_up
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import FitAnswer

# A program is stopped after this many optimizer steps without a new peak.
SETTLED_STEPS = 10
# Above the need of any program, while several expandable segments' address spaces, each
# 9/8 of it, fit on the phantom device.
_ENDLESS_BYTES = 512 << 30
_LINES = 10
_TORCH_COMPILE = (
    "TORCH_COMPILE_DISABLE=1 is set: the figures are those of the program uncompiled"
)
# Further runs where workspaces are estimated, each with another draw of them.
_DRAWS = 4
# Student's t, two-sided 95 %, by degrees of freedom.
_T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
_MEASURED_RANKS = 4
_EXTRAPOLATED = (
    "NCCL's memory was measured with up to four ranks of a machine and is extrapolated to {:,}: "
    "networks, trees and NVLink multicast may take some hundred MiB more"
)

_UNEQUAL = (
    "the ranks sent each other parts of unequal sizes, as tokens for experts: as many came to "
    "each as it sent. How many come follows from data; a rank to which more come takes more"
)
# How many of the rows that ranks send each other come to the one that decides.
_COMES = {
    "none": "no row comes",
    "even": "as many rows come as to each other rank",
    "all": "all rows of all ranks come",
}


def answer_of(
    words, gpu, devices, memory, vary, steps, timeout, tell=None, world=None
) -> FitAnswer:
    """As fit(), for a command's WORDS; TELL(text) is called with the current activity.
    WORLD: of which ranks run alone.
    """
    asked = Asked(words, gpu, devices, memory, steps, timeout, tell, world)
    with asked.runs:
        if vary is None:
            return asked.answer(Command(words), {})
        return _fit_vary.search(asked, words, _fit_vary.parse(vary))


class Asked:
    """The question, and how a program is tried under it."""

    def __init__(self, words, gpu, devices, memory, steps, timeout, tell, world):
        if steps is not None:
            check_count(steps, 1, "steps")
        if not timeout > 0:
            raise ValueError(f"timeout must be more than 0 seconds, not {timeout!r}")
        if world is not None:
            devices = world.local
        elif devices is None:
            devices = ranks_of(words)
        if isinstance(memory, str):
            memory = phantom.parse_memory(memory)
        # Names and numbers are checked before anything runs.
        variables = phantom.environment(gpu, devices, memory)
        known = phantom.gpus()[variables["MEMLAB_PHANTOM_GPU"]]
        memory = int(variables["MEMLAB_PHANTOM_MEMORY"] or known.total_bytes)
        self.gpu, self.gpu_name = known.name, known.full_name
        self.capacity = memory
        self._endless = max(_ENDLESS_BYTES, 2 * memory)
        self._described = f"{self.gpu_name} with {wording.size(memory)}"
        self.tell = tell or (lambda text: None)
        self.runs = Runs(known.name, devices, timeout, steps, SETTLED_STEPS, world)
        self.runs.tell = self.tell
        self.tell_run = self.runs.tell_run
        self._timeout = timeout
        self._world = world

    def answer(self, command, variables):
        """The whole answer for COMMAND with further environment VARIABLES."""
        self.tell(f"running {command.name} on {self._described}")
        return self.complete(*self.try_out(command, variables), command, variables)

    def try_out(self, command, variables):
        """(the answer as far as one run gives it, that run)."""
        run = self._run(command, self.capacity, variables)
        answer = {
            "fits": not run.out_of_memory,
            "program": command.name,
            "gpu": self.gpu,
            "devices": self._devices(run),
            "out_of_memory": _where(run) if run.out_of_memory else None,
            **_progress(run),
            "notes": _notes(run) + self._said_of_nccl(),
            "world": self._world_of(run),
            "vary": None,
        }
        return answer, run

    def complete(self, answer, run, command, variables):
        """ANSWER, completed with the rest of RUN and, if the program does not fit,
        another run.
        """
        if not answer["fits"]:
            run = self._learn_need(answer, command, variables) or run
        # Ranks may share a device; of a world each has its own.
        used = {}
        for item in answer["devices"]:
            place = self._place(item)
            used[place] = used.get(place, 0) + item["total_bytes"]
        self.tell("trying driver placements and allocator settings")
        recordings = {
            number: load.read_recording(path) for number, path in run.recordings.items()
        }
        draws = self._draws(answer, run, command, variables)
        for item in answer["devices"]:
            item["headroom_bytes"] = self.capacity - used[self._place(item)]
            # If this device alone is not too full, another one was.
            item["fits"] = answer["fits"] or item["headroom_bytes"] >= 0
            number = min(recordings) if item["rank"] is None else item["rank"]
            item.update(_peak(recordings[number], item["device"]))
            try:
                item.update(self._what_if(recordings[number], item))
            except Error as error:
                reserved = item["reserved_peak_bytes"]
                item.update(reserved_peak_range_bytes=[reserved] * 2, settings=None)
                answer["notes"].append(
                    f"cuda:{item['device']}: other driver placements and settings could not "
                    f"be tried: {error}"
                )
            self._widen(item, number, draws)
        if answer["world"] is not None:
            fullest = min(answer["devices"], key=lambda item: item["headroom_bytes"])
            answer["world"]["decides"] = fullest["rank"]
            answer["world"]["rows"] = self.rows(answer, run, command, variables)
        return answer

    def rows(self, answer, run, command, variables, comes=tuple(_COMES)):
        """Of the ranks that tell numbers of rows the one that takes most, by how many rows of
        others come to it, COMES; None: no rank was seen to tell any.
        """
        tell = [item for item in answer["devices"] if tells_parts(run, item)]
        if not tell or run.late:
            return None
        rank = max(tell, key=lambda item: item["total_bytes"])["rank"]
        sizes = run.ranks[rank]["told_parts"]
        found = []
        for assumed in comes:
            self.tell_run(f"running rank {rank}, to which {_COMES[assumed]}")
            parts = f"{assumed}:{','.join(map(str, sizes))}"
            other = {**variables, "MEMLAB_PHANTOM_PARTS": parts}
            result = self.runs.again(rank, command, self._endless, other, run.ranks)
            if result.failed or result.late or not result.usable:
                answer["notes"].append(
                    f"rank {rank} {_ended(result.status)} where {_COMES[assumed]}"
                    f"{_by(result)}"
                )
                return None
            figures = max(self._devices(result), key=lambda item: item["total_bytes"])
            found.append(
                {
                    "rank": rank,
                    "assumed": assumed,
                    **{key: figures[key] for key in BYTES},
                    "headroom_bytes": self.capacity - figures["total_bytes"],
                }
            )
        return found

    def _place(self, item):
        return (item["rank"] if self._world is not None else None), item["device"]

    def _world_of(self, run):
        """The world and its ranks that ran; None: no world was asked for."""
        if self._world is None:
            return None
        return {
            "size": self._world.size,
            "nodes": self._world.nodes,
            "ranks": [
                {"rank": rank, "reason": run.reasons[rank]} for rank in sorted(run.reasons)
            ],
            "decides": min(run.reasons),
            "rows": None,
        }

    def _said_of_nccl(self):
        if self._world is None or self._world.size <= _MEASURED_RANKS:
            return []
        return [_EXTRAPOLATED.format(self._world.size)]

    def _draws(self, answer, run, command, variables):
        """Runs in which each convolution whose workspace is estimated takes what another of
        the most similar measured ones does; none where nothing is estimated.
        """
        if not any(rank["estimated"] for rank in run.ranks.values()):
            return []
        draws = []
        # One that did not end in time would not do so again.
        for number in range(1, 0 if run.late else _DRAWS + 1):
            self.tell_run(f"trying other workspaces of convolutions, run {number} of {_DRAWS}")
            other = {**variables, "MEMLAB_PHANTOM_DRAW": str(number)}
            draw = self.runs.run(command, self._endless, other)
            if (draw.late, draw.failed, draw.ranks.keys()) == (
                False, run.failed, run.ranks.keys(),
            ):  # fmt: skip
                draws.append(draw)
        answer["notes"].append(
            "some convolutions have shapes that were not measured on a GPU, so what cuDNN "
            "takes for them is estimated; the ranges are those of "
            f"{wording.plural(1 + len(draws), 'run')}, with what it takes for similar ones"
        )
        return draws

    def _widen(self, item, number, draws):
        """Sets the ranges of the device ITEM, of rank NUMBER, where DRAWS were made."""
        allocated = [item["allocated_peak_bytes"]]
        reserved = [item["reserved_peak_bytes"]]
        ranges = [item["reserved_peak_range_bytes"]]
        for draw in draws:
            for figures in draw.ranks[number]["devices"]:
                if figures["device"] == item["device"]:
                    allocated.append(figures["allocated_peak_bytes"])
                    reserved.append(figures["reserved_peak_bytes"])
                    recording = load.read_recording(draw.recordings[number])
                    ranges.append(self._reserved(recording, figures))
        item["allocated_peak_range_bytes"] = _both(allocated, _predicted(allocated))
        item["reserved_peak_range_bytes"] = _both(*ranges, _predicted(reserved))

    def _reserved(self, recording, figures):
        """The least and the most reserved, over driver placements, of the device FIGURES."""
        replay = recording.replay(figures["device"], memory=self._endless)
        return _both(replay["reserved_peak_range_bytes"], [figures["reserved_peak_bytes"]])

    def _what_if(self, recording, item):
        """The need of the device ITEM with other placements, or by other settings."""
        device, reserved = item["device"], item["reserved_peak_bytes"]
        room = self.capacity - item["total_bytes"] + reserved
        settings = None
        if room > 0:
            tuned = recording.tune(device, memory=room)
            best = tuned["best"]
            if best is not None:
                settings = {
                    "conf": best["conf"],
                    "reserved_peak_bytes": best["reserved_peak_bytes"],
                    "saving_bytes": reserved - best["reserved_peak_bytes"],
                    "fits": tuned["fits"],
                }
        return {
            "reserved_peak_range_bytes": self._reserved(recording, item),
            "settings": settings,
        }

    def _run(self, command, memory, variables):
        run = self.runs.run(command, memory, variables)
        for rank, alone in run.alone.items():
            self._check(alone, f"rank {rank} of {command.name}")
        if not run.alone:
            self._check(run, command.name)
        elif not any(rank["joined"] for rank in run.ranks.values()):
            raise Error(
                f"{command.name} never made a process group, as by "
                "torch.distributed.init_process_group: its ranks are programs of their own; "
                "ask without --world-size"
            )
        return run

    def _check(self, run, name):
        """Raises memlab.Error if RUN, of the program NAME, shows nothing."""
        if run.refused is not None:
            raise Error(run.refused)
        if run.late and not any(rank["steps"] for rank in run.ranks.values()):
            raise Error(
                f"{name} made no optimizer step within {self._timeout:g} s and did "
                "not end. On the phantom device only small tensors are computed: other values "
                "are made up, and a loop that waits for one may not end. Give the program "
                f"more time (timeout), or less to do{_printed(run)}"
            )
        if run.failed and not run.usable:
            raise Error(
                f"{name} {_ended(run.status)}{_by(run)}, on the phantom device, where values "
                f"read from the GPU are not real{_printed(run)}"
            )
        if not run.ranks:
            raise Error(
                f"{name} ended without a report, as by os._exit() or exec: let it "
                f"end normally{_printed(run)}"
            )
        if not any(rank["devices"] for rank in run.ranks.values()):
            raise Error(
                f"{name} used no GPU in its own process. Processes that it starts are "
                f"measured only if torchrun starts them{_printed(run)}"
            )

    def _learn_need(self, answer, command, variables):
        """Replaces the figures of a run that ended early by those of a run without a
        limit, and returns that run; None: it failed.
        """
        self.tell_run(
            "out of memory; running again with unlimited memory to measure what it needs"
        )
        try:
            run = self._run(command, self._endless, variables)
        except Error as error:
            answer["notes"].append(
                f"the figures end where memory ran out: with unlimited memory {error}"
            )
            return None
        if run.out_of_memory:
            answer["notes"].append(
                f"the figures end where {self._endless >> 30} GiB of memory ran out too"
            )
        answer["devices"] = self._devices(run)
        # Of a world, more ranks may have run than before.
        answer["world"] = self._world_of(run)
        answer.update(_progress(run))
        return run

    def _devices(self, run):
        return [
            {
                "rank": number if len(run.ranks) > 1 or run.alone else None,
                "name": self.gpu_name,
                **figures,
                "total_bytes": figures["reserved_peak_bytes"] + figures["outside_bytes"],
                "capacity_bytes": self.capacity,
            }
            for number, rank in sorted(run.ranks.items())
            for figures in rank["devices"]
        ]


def tells_parts(run, item):
    """Whether in RUN the rank of the device ITEM told others how many rows it sends."""
    return bool(run.ranks[item["rank"]]["told_parts"])


def _both(*ranges):
    """From the least to the most of RANGES."""
    return [min(map(min, ranges)), max(map(max, ranges))]


def _predicted(seen):
    """Where one more like those SEEN lies with 95 %, if they are normally distributed."""
    if len(set(seen)) == 1:
        return seen[:1]
    away = _T95[len(seen) - 1] * statistics.stdev(seen) * math.sqrt(1 + 1 / len(seen))
    middle = statistics.fmean(seen)
    return [max(0, round(middle - away)), round(middle + away)]


def _peak(recording, device):
    peak = recording.peak(device)
    return {"by_category": peak["by_category"], "by_line": peak["by_line"][:_LINES]}


def _printed(run):
    return f"; it printed last:\n{run.output}" if run.output else ""


def _ended(status):
    return f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"


def _by(run):
    """The error of the first rank of RUN that has one, in a line."""
    errors = [rank["error"] for rank in run.ranks.values() if rank["error"]]
    return f" by {wording.escape(errors[0].replace(chr(10), ' '))}" if errors else ""


def _progress(run):
    """The program's progress: that of the slowest rank."""
    least = min(run.ranks.values(), key=lambda rank: rank["steps"])
    return {
        "ended": "time" if run.late else "failed" if run.failed else least["ended"],
        "steps": least["steps"],
        "steps_after_peak": least["steps"] - max(r["rose"] for r in run.ranks.values()),
        "torch": least["torch"],
    }


def _notes(run):
    notes = [_TORCH_COMPILE] if os.environ.get("TORCH_COMPILE_DISABLE") == "1" else []
    rebuilt = max((rank["rebuilt_bytes"] for rank in run.ranks.values()), default=0)
    if rebuilt:
        notes.append(
            "DistributedDataParallel rebuilds its buckets in the second step, and torch's NCCL "
            "watchdog frees the old ones later: by chance the peak is up to "
            f"{wording.size(rebuilt)} higher"
        )
    told = run.alone and any(rank["told_parts"] for rank in run.ranks.values())
    if any(rank["unequal"] for rank in run.ranks.values()) and not told:
        notes.append(_UNEQUAL)
    if run.failed:
        notes.append(
            f"the program failed{_by(run)}: on the phantom device values read from the GPU are "
            "not real. The figures are those up to there"
        )
    for _, rank in sorted(run.ranks.items()):
        said = made_up.sentence(rank["made_up"], os.getcwd())
        if said is not None:
            notes.append(said)
            break
    return notes


def _where(run):
    """The out of memory: that of the first rank that had one."""
    for number, rank in sorted(run.ranks.items()):
        recording = load.read_recording(run.recordings[number])
        for figures in rank["devices"]:
            oom = recording.oom(figures["device"])
            if oom is None:
                continue
            request = oom["request"]
            return {
                "device": figures["device"],
                "rank": number if len(run.ranks) > 1 or run.alone else None,
                "file": request["file"],
                "line": request["line"],
                "function": request["function"],
                "reason": request["reason"],
                "requested_bytes": request["bytes"],
                "error": rank["error"],
            }
    [(number, rank), *_] = [
        item for item in sorted(run.ranks.items()) if item[1]["out_of_memory"]
    ]
    return {
        "device": None,
        "rank": number if len(run.ranks) > 1 or run.alone else None,
        "file": "",
        "line": 0,
        "function": "",
        "reason": "outside torch's allocator",
        "requested_bytes": None,
        "error": rank["error"],
    }
