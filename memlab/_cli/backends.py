"""`memlab backends`."""

from memlab._cli import telling


def add(commands):
    command = commands.add_parser("backends", help="say what can be recorded here")
    command.set_defaults(command="backends", run=run)


def run(options):
    from memlab._native import backends

    for name, state in backends.backends().items():
        word = "yes" if state["available"] else "no "
        telling.show(f"{name:8} {word}  {state['reason']}".rstrip())
    return 0
