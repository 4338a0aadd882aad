"""`memlab explain`."""

from memlab._cli import kinds, laboratory


def add(commands):
    command = commands.add_parser(
        "explain",
        help="say why the peak of a file is what it is, and what to change",
        description="Says in words why the peak of a recorded run is what it is, and what to "
        "change so that it falls: each advice with what it saves in a replay of the run as "
        "it would have been.",
    )
    command.set_defaults(command="explain", run=run)
    command.add_argument("file", help=kinds.FILE)
    laboratory.add_options(command)


def run(options):
    from memlab._lab import explain

    answer = explain.explain(
        options.file, options.memory, device=options.device, rank=options.rank
    )
    return laboratory.tell(options, answer, explain.sections)
