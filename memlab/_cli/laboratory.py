"""Options shared by the laboratory's commands."""

from memlab._cli import kinds


def add_options(command):
    command.add_argument(
        "--memory",
        type=kinds.memory,
        metavar="SIZE",
        help="memory for torch's allocator, for example 24GiB (default: as recorded)",
    )
    command.add_argument(
        "--device",
        type=kinds.index,
        metavar="N",
        help="this device only (default: all)",
    )
    command.add_argument(
        "--rank",
        type=kinds.rank,
        metavar="N",
        help="the devices of this rank only, of a file that memlab merge wrote",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
