"""argparse for memlab's commands: help and version that do not arrive are an error."""

import argparse
import sys

from memlab._text import terminal


class Parser(argparse.ArgumentParser):
    """Raises Error where what was asked for, as by --help, cannot be written."""

    def _print_message(self, message, file=None):
        # argparse passes over what its stream refuses.
        if message and file is sys.stdout:
            terminal.answer(message.removesuffix("\n"))
        else:
            super()._print_message(message, file)
