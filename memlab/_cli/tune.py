"""`memlab tune`."""

from memlab._cli import kinds, laboratory, telling


def add(commands):
    command = commands.add_parser(
        "tune",
        help="find the allocator settings with which a recorded run would reserve least",
        description="Replays a recording under many allocator settings.  Prints the best, "
        "what they save, and bounds that no settings can beat.",
    )
    command.set_defaults(command="tune", run=run)
    command.add_argument("file", help=kinds.FILE_OR_FOLDER)
    laboratory.add_options(command)


def run(options):
    from memlab._lab import tune

    answer = tune.tune(
        options.file, options.memory, device=options.device, rank=options.rank
    )
    telling.answer(answer, options.json)
    return 0
