"""`memlab top`."""

import sys

from memlab._cli import kinds, telling
from memlab._errors import Error
from memlab._text import terminal


def add(commands):
    command = commands.add_parser(
        "top",
        help="show what a running job has allocated, live",
        description="Shows live what a running job has allocated, by line, module, category "
        "or stack.  memlab reads only the job's .mlab file and does not disturb the job.",
    )
    command.set_defaults(command="top", run=run)
    command.add_argument(
        "job",
        nargs="?",
        metavar="PID|FILE",
        help="a process (its children count too), a .mlab file, or a folder of them "
        "(default: your running job)",
    )
    command.add_argument("--once", action="store_true", help="print once and exit")
    command.add_argument("--json", action="store_true", help="print once as JSON and exit")
    command.add_argument(
        "--by",
        action="append",
        choices=("line", "module", "category", "stack"),
        help="a table of --once; may be repeated (default: line and module)",
    )
    command.add_argument(
        "--lines",
        type=kinds.count,
        default=15,
        metavar="N",
        help="rows of each table of --once (default: %(default)s)",
    )


def run(options):
    from memlab._monitor import top

    followed = [top.Followed(name, path) for name, path in top.find(options.job)]
    if not (options.once or options.json):
        if sys.stdout is None or not sys.stdout.isatty():
            raise Error("stdout is not a terminal: use memlab top --once, or --json")
        try:
            from memlab._monitor import top_screen
        except ImportError as error:
            raise Error(
                f"the live view needs the package {error.name}: pip install 'memlab[tui]'; "
                "--once works without"
            ) from None
        top_screen.Screen(followed).run()
        return 0
    for one in followed:
        while one.read():
            pass
        one.look()
    if options.json:
        looks = [one.answer() for one in followed]
        telling.data({"files": looks})
        return 0
    by = tuple(options.by or ("line", "module"))
    drawn = top.draws(sys.stdout)
    parts = []
    if len(followed) > 1:
        parts.append("\n".join(top.ranks(followed)))
        followed = [top.highest(followed)]
    parts.append(top.text(followed[0], by, options.lines, drawn))
    terminal.answer(terminal.fitted("\n\n".join(parts), sys.stdout))
    return 0
