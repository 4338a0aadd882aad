"""argparse for memlab's commands: help and version that cannot be written are an error.
"""

import argparse
import sys

from memlab._text import terminal


class Parser(argparse.ArgumentParser):
    """Raises Error if requested output, as of --help, cannot be written."""

    def _print_message(self, message, file=None):
        # argparse ignores errors of its stream.
        if message and file is sys.stdout:
            terminal.answer(message.removesuffix("\n"))
        else:
            super()._print_message(message, file)
