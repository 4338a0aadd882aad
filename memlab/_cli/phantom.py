"""`memlab phantom`, whose remaining arguments are another program's."""


def add(commands):
    commands.add_parser(
        "phantom",
        help="run a program on the phantom device, without recording",
        add_help=False,
    )


def run(words):
    from memlab import phantom

    return phantom.main(words)
