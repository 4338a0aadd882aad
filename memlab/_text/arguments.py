"""argparse for memlab's commands: help and version that cannot be written are an error, and
an option that is none is told by its own command, with the one that was meant.
"""

import argparse
import sys

from memlab._text import terminal


class Parser(argparse.ArgumentParser):
    """Raises Error if requested output, as of --help, cannot be written."""

    def parse_known_args(self, args=None, namespace=None):
        # A command's parser hands on what it does not know, to one that knows no option.
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._meant(unknown[0]))
        return known, unknown

    def _meant(self, word):
        """What is told of WORD, which is no argument."""
        import difflib

        option = word.partition("=")[0]
        if not option.startswith("-"):
            return f"{word!r} is one argument too many"
        own = [name for name in self._option_string_actions if name.startswith("--")]
        near = difflib.get_close_matches(option, own, 1)
        return f"{option} is no option" + (f"; did you mean {near[0]}?" if near else "")

    def _print_message(self, message, file=None):
        # argparse ignores errors of its stream.
        if message and file is sys.stdout:
            terminal.answer(message.removesuffix("\n"))
        else:
            super()._print_message(message, file)
