"""`memlab dump`."""

import os

from memlab._cli import kinds, telling
from memlab._errors import Error


def add(commands):
    command = commands.add_parser(
        "dump",
        help="write what a running job holds now",
        description="Writes what a running job holds now as snapshots that memlab and torch's "
        "viewer read, one a rank, and reports it.  memlab reads only the job's .mlab file "
        "and does not disturb the job.",
    )
    command.set_defaults(command="dump", run=run)
    command.add_argument(
        "job", metavar="PID|FILE", help="a process (its children count too), or a .mlab file"
    )
    command.add_argument(
        "--out",
        default="memlab_dump",
        metavar="DIR",
        help="folder for the snapshots (default: %(default)s)",
    )
    command.add_argument(
        "--lines",
        type=kinds.count,
        default=15,
        metavar="N",
        help="most rows of the table by line (default: %(default)s)",
    )


def run(options):
    from memlab._files import merged
    from memlab._monitor import top
    from memlab._recording import commands
    from memlab._recording.recording import Recording

    found = top.find(options.job)
    recordings = [merged.read(path, quiet=True) for _, path in found]
    try:
        os.makedirs(options.out, exist_ok=True)
    except OSError as error:
        raise Error(f"cannot write to {options.out!r}: {error.strerror}") from None
    written = []
    for (name, _), recording in zip(found, recordings, strict=True):
        path = _free(os.path.join(options.out, _stem(name)), written)
        recording.write_pickle(path, True)
        written.append(path)
    together = recordings[0]
    if len(recordings) > 1:
        together = merged.read_all([path for _, path in found], quiet=True)
    now = Recording(together, options.job)
    telling.answer(commands.report(now, at="end", lines=options.lines), False)
    for path in written:
        telling.say(f"Wrote {path}")
    return 0


def _stem(name):
    return os.path.splitext(os.path.basename(name))[0]


def _free(stem, taken):
    """The path of a snapshot STEM that is not in TAKEN: two files may be named alike."""
    path, number = f"{stem}.pickle", 2
    while path in taken:
        path, number = f"{stem}-{number}.pickle", number + 1
    return path
