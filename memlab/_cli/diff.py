"""`memlab diff`."""

from memlab._cli import kinds, telling


def add(commands):
    command = commands.add_parser(
        "diff",
        help="compare the memory of two runs, line by line",
        description="Compares two runs, two steps or two ranks: what appeared, is gone, "
        "grew, shrank or moved in time, at the peak and in each phase.",
    )
    command.set_defaults(command="diff", run=run, wrong_usage=command.error)
    command.add_argument("before", metavar="BEFORE", help=kinds.FILE_OR_FOLDER)
    command.add_argument(
        "after",
        nargs="?",
        metavar="AFTER",
        help="likewise; without it, compare two instants or ranks of BEFORE",
    )
    command.add_argument(
        "--at",
        type=kinds.instants,
        default="peak",
        metavar="WHEN[,WHEN]",
        help="the instant to compare, or one for each: peak, end, step:12 or 12, 1.5s, "
        "event:123 (default: peak)",
    )
    command.add_argument(
        "--ranks",
        type=kinds.two_ranks,
        metavar="N,N",
        help="compare these ranks, of files that memlab merge wrote",
    )
    command.add_argument(
        "--device",
        type=kinds.index,
        metavar="N",
        help="the device to compare (default: the fullest of each)",
    )
    command.add_argument(
        "--lines",
        type=kinds.count,
        default=15,
        metavar="N",
        help="rows of the table by line (default: %(default)s)",
    )
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument(
        "--html", metavar="FILE", help="write an HTML page without scripts to this file"
    )
    form.add_argument(
        "--markdown", action="store_true", help="print Markdown, for a pull request"
    )


def run(options):
    from memlab._compare import diff

    at = options.at
    if options.after is None and at[0] == at[1] and options.ranks is None:
        options.wrong_usage(
            "name a second file, or two instants or ranks of this one, for example --at 3,9 "
            "or --ranks 0,1"
        )
    answer = diff.diff(
        options.before,
        options.after,
        at=(str(at[0]), str(at[1])),
        ranks=options.ranks,
        device=options.device,
        html=options.html,
        lines=options.lines,
    )
    if options.html is not None:
        telling.say(f"Page: {options.html}")
    else:
        telling.answer(answer, options.json, options.markdown)
    return 0
