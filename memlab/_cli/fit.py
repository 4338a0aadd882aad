"""`memlab fit`."""

import argparse
import contextlib
import signal
import sys

from memlab._cli import kinds, telling
from memlab._text import terminal

# Options that need more than one answer.
_OF_A_TABLE = ("where", "price", "jobs", "cluster", "answers", "out")


def add(commands):
    command = commands.add_parser(
        "fit",
        help="say whether a program fits on a GPU that is not here",
        allow_abbrev=False,
        usage="memlab fit [options] [-m] [python] program arguments...",
        description="Runs the program, unchanged, on the phantom device until its peaks "
        "stop rising, and says whether it fits.  The phantom device stands in for a GPU and "
        "computes only small results.  Exit status: 0 it fits, 3 it does not fit, 1 the program or "
        "memlab failed, 2 wrong usage.",
    )
    command.set_defaults(command="fit", run=run, wrong_usage=command.error)
    command.add_argument(
        "--gpu",
        help="see memlab phantom --list (default: h200); of several, as h100,b200, a table",
    )
    command.add_argument(
        "--devices",
        type=kinds.count,
        metavar="N",
        help="how many GPUs (default: 1; with torchrun, one for each rank)",
    )
    command.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory of each, for example 24GiB (default: what the GPU has)",
    )
    command.add_argument(
        "--world-size",
        type=kinds.count,
        metavar="N",
        help="the program is one of N ranks: run some of them, each alone",
    )
    command.add_argument(
        "--nodes",
        type=kinds.count,
        metavar="N",
        help="machines of the world (default: by torchrun's --nproc-per-node, else 8 ranks "
        "a machine)",
    )
    command.add_argument(
        "--ranks",
        metavar="R,R",
        help="the ranks to run, for example 0,511,1023 (default: one of each kind)",
    )
    command.add_argument(
        "--vary",
        action="append",
        metavar="NAME=A..B",
        help="find the largest value from A to B that fits; NAME is {NAME} in an argument, "
        "an argument --NAME or NAME=, or an environment variable in capitals. Again, with "
        "values, as tp=1,2,4: a table of all",
    )
    command.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="for a table: leave out settings that do not meet it, as 'tp * pp == 8'",
    )
    command.add_argument(
        "--price",
        type=_prices,
        default={},
        metavar="GPU=N,GPU=N",
        help="for a table: what an hour of one GPU costs; the cheapest that fits is named",
    )
    command.add_argument(
        "--table",
        action="store_true",
        help="print a line for each GPU and setting, also for one",
    )
    command.add_argument(
        "--jobs",
        type=kinds.count,
        metavar="N",
        help="for a table: run N programs at once (default: 1)",
    )
    command.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="for a table: run the programs on a cluster of Ray's, one a processor; auto: the "
        "one that this machine is in",
    )
    command.add_argument(
        "--answers",
        metavar="FILE",
        help="for a table: keep what was tried in FILE, and do not try it again",
    )
    command.add_argument(
        "-o",
        "--out",
        action="append",
        default=[],
        metavar="FILE",
        help="for a table: write it to FILE too: .html, with a picture, or .parquet",
    )
    command.add_argument(
        "--steps",
        type=kinds.count,
        metavar="N",
        help="end the program after N optimizer steps (default: when no peak rose for 10 "
        "steps)",
    )
    command.add_argument(
        "--timeout",
        type=kinds.seconds,
        metavar="SECONDS",
        help="time limit of one run of the program (default: 900)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument(
        "-m",
        dest="module",
        action="store_true",
        help="the program is a module",
    )
    command.add_argument("words", nargs=argparse.REMAINDER, metavar="program")


def run(options):
    from memlab import phantom
    from memlab._fit import sweep, table_file, vary, world

    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    varied, gpus = options.vary or [], (options.gpu or "").split(",")
    try:
        if not words:
            raise ValueError("no program given, as in memlab fit python train.py")
        if options.module:
            words = ["-m", *words]
        settings = [vary.parse_any(text) for text in varied]
        for gpu in gpus:
            phantom.environment(gpu or None, options.devices, options.memory)
        wanted = None if options.ranks is None else world.parse_ranks(options.ranks)
        around = world.of(options.world_size, options.nodes, wanted, words, options.devices)
        chosen = any(isinstance(setting, vary.Choices) for setting in settings)
        table = options.table or chosen or len(varied) > 1 or len(gpus) > 1
        if table:
            sweep.settings(varied, options.where, around)
            for name in options.price:
                phantom.environment(name)
            for path in options.out:
                table_file.check(path)
        elif given := [name for name in _OF_A_TABLE if getattr(options, name)]:
            raise ValueError(f"--{given[0]} is for a table: add --table")
        if options.jobs is not None and options.cluster is not None:
            raise ValueError(
                "--jobs and --cluster exclude each other: a cluster runs as many programs as "
                "it has processors"
            )
    except ValueError as error:
        options.wrong_usage(str(error))
    _say_what_is_behind(words)
    with _leaving_nothing():
        answer_of = _table if table else _one
        return answer_of(options, words, [gpu or None for gpu in gpus], varied, around)


def _one(options, words, gpus, varied, around):
    """One answer, whole."""
    from memlab._fit import answer as _fit_answer
    from memlab._fit import fit
    from memlab._fit import text as _fit_text

    answer = _fit_answer.answer_of(
        words,
        *gpus,
        options.devices,
        options.memory,
        varied[0] if varied else None,
        options.steps,
        options.timeout or fit.TIMEOUT_SECONDS,
        tell=_tell,
        world=around,
    )
    if options.json:
        telling.data(answer)
    else:
        telling.show(_fit_text.text(answer).removesuffix("\n"))
    return 0 if answer["fits"] else 3


def _table(options, words, gpus, varied, around):
    """A line for each GPU and setting."""
    from memlab._fit import cluster, fit, sweep, table_file
    from memlab._fit import text as _fit_text

    with contextlib.ExitStack() as stack:
        executor = None
        if options.jobs is not None:
            executor = stack.enter_context(sweep.workers(options.jobs))
        elif options.cluster is not None:
            executor = stack.enter_context(cluster.executor(options.cluster))
        answer = sweep.sweep_of(
            words,
            gpus,
            varied,
            around,
            options.steps,
            options.timeout or fit.TIMEOUT_SECONDS,
            options.answers,
            executor,
            options.devices,
            options.memory,
            _tell,
            options.where,
            options.price,
        )
    if options.json:
        telling.data(answer)
    else:
        telling.show("\n".join(_fit_text.table(answer)))
    for path in options.out:
        table_file.write(answer, path)
    return 0 if any(row["fits"] for row in answer["rows"]) else 3


def _prices(text):
    found = {}
    for part in text.split(","):
        name, equals, price = part.partition("=")
        try:
            found[name.strip()] = float(price)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{part!r} is not GPU=PRICE, as in h100=2.5"
            ) from None
    return found


def _tell(text):
    terminal.say(f"memlab: {text}", sys.stderr)


def _say_what_is_behind(words):
    """Names an option of memlab's that stands behind the program, which has it then."""
    for word in words:
        name = word.partition("=")[0]
        if name in ("--vary", "--gpu", "--memory", "--world-size", "--ranks"):
            terminal.say(
                f"memlab: {name} stands behind the program, which gets it; for memlab write "
                f"memlab fit {name} ... before it",
                sys.stderr,
            )


@contextlib.contextmanager
def _leaving_nothing():
    """If a signal ends this process, its child processes, which have sessions of their
    own, and its files are removed first, as after Ctrl-C.
    """

    def leave(number, frame):
        sys.exit(128 + number)

    caught = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in caught:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)
