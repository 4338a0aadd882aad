"""`memlab run`: runs a program unchanged, and records its memory."""

import functools
import os

from memlab._record import oom
from memlab._run import growing, made_up, ranks, results
from memlab._run import program as _program
from memlab._run.telling import Telling


def run(options) -> int:
    """Runs options.program and returns its exit status."""
    source = _program.prepare(options)
    name = os.path.basename(options.program)
    outputs = results.Held(options.out, name, _program.rank())
    ranks.begin(outputs)
    recording = {"source": source, **results.arguments(options)}
    snapshot, outputs.events = results.start(
        recording, outputs.path(".mlab"), results.limits(options)
    )
    growing.Watch(snapshot).start()
    telling = Telling(options.quiet)
    watch = None

    def tell_once(text):
        if ranks.is_first_to_tell(outputs):
            telling.say(text)

    def write():
        progress = telling.progress("writing the results")
        try:
            return results.write_results(snapshot, outputs, watch)
        finally:
            progress.end()

    def end():
        return telling.result(write(), outputs)

    terminated = write
    if source == "cuda":
        from memlab._run import commands
        from memlab._run import processes as _processes

        watch = oom.Watch(snapshot, outputs.oom_paths, outputs.start)
        watch.begin()
        note = functools.partial(
            commands.note,
            own=_program.own_words(options),
            program=_program.words(options),
        )
        processes = _processes.Processes(
            snapshot, outputs, (recording, results.limits(options)), write, telling, note
        )
        end, terminated = processes.end, processes.terminated
    if _program.rank() == "0":
        telling.say(f"memlab: recording {_program.described(source)}")
    _program.when_terminated(terminated, "the recording")

    def told():
        made_up.tell(tell_once)
        return end()

    return _program.run(options, told)
