"""What a try on one GPU says of the same try on another: memlab.sweep.

Owns which GPUs differ in their memory alone, and what follows for one with less.
"""

from memlab import phantom
from memlab._fit.run import ranks_of


class Needs:
    """The tries that are done, for GPUs of the same chip."""

    def __init__(self):
        self._done = {}  # of() -> [(bytes of memory, result), ...]

    def add(self, question, result):
        """Notes the RESULT of QUESTION of a row of a sweep."""
        if result["error"] is None and (need := of(question)) is not None:
            self._done.setdefault(need, []).append((capacity_of(question), result))

    def find(self, question):
        """The result that QUESTION has, too; None: it is to be tried.

        A run that never took more than there is here goes the same way here.  What does not
        fit into more memory is taken not to fit into less.  In between torch may free its
        cache and fit.
        """
        here = capacity_of(question)
        for capacity, result in self._done.get(of(question), ()):
            enough = result["fits"] and result["total_bytes"] <= here
            if capacity >= here and (enough or not result["fits"]):
                return result
        return None


def of(question):
    """What a try's need of memory depends on, by which QUESTION is known; None: on more, for
    its ranks share a device.
    """
    words, variables, gpu, _, devices, around, steps, *_ = question
    if devices is not None and devices < (ranks_of(words) or 1):
        return None
    known = phantom.gpus()[gpu]
    chip = known.capability, known.multiprocessors
    return repr((words, sorted(variables.items()), chip, devices, around, steps))


def capacity_of(question):
    """The bytes of a GPU's memory in QUESTION."""
    _, _, gpu, memory, *_ = question
    return memory or phantom.gpus()[gpu].total_bytes
