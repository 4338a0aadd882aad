"""`memlab explain`."""

from memlab._cli import kinds, laboratory


def add(commands):
    command = commands.add_parser(
        "explain",
        help="explain the peak, and what to change so that it falls",
        description="Explains the peak of a recorded run and lists changes that lower it.  "
        "The saving of each change is measured by a replay of the changed run.",
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
