"""A Jupyter kernel, as a notebook talks to it, and what its cells show."""

import re
from types import SimpleNamespace

import pytest

pytest.importorskip("IPython", reason="IPython is not installed")
jupyter_client = pytest.importorskip(
    "jupyter_client", reason="jupyter_client is not installed"
)
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

# The longest time for a cell on a busy machine.
PATIENCE = 300


class Kernel:
    """A Jupyter kernel, as a notebook talks to it."""

    def __init__(self, environment, folder):
        self.manager = jupyter_client.KernelManager(kernel_name="python3")
        self.manager.start_kernel(env=environment, cwd=str(folder))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE)

    def run(self, cell):
        """The output of CELL: text of stdout and stderr, displayed objects, the result,
        and its error.
        """
        shown = SimpleNamespace(out="", err="", displays=[], result=None, error=None)

        def keep(message):
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                name = {"stdout": "out", "stderr": "err"}[content["name"]]
                setattr(shown, name, getattr(shown, name) + content["text"])
            elif kind == "display_data":
                shown.displays.append(content["data"])
            elif kind == "execute_result":
                shown.result = content["data"]
            elif kind == "error":
                shown.error = (content["ename"], content["evalue"])
                traceback = "\n".join(content["traceback"])
                shown.traceback = re.sub(r"\x1b\[[\d;]*m", "", traceback)

        reply = self.client.execute_interactive(
            cell, timeout=PATIENCE, output_hook=keep, allow_stdin=False
        )
        shown.pages = [
            p["data"]["text/plain"] for p in reply["content"].get("payload", [])
        ]
        return shown

    def end(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def ran(shown):
    """SHOWN, which must have come without an error."""
    assert shown.error is None, shown.traceback
    return shown


def usage_error(shown):
    """The error of SHOWN that is one line and no traceback."""
    assert shown.error is None and shown.err.startswith("UsageError: "), shown
    return shown.err.removeprefix("UsageError: ")


def text(shown):
    return ran(shown).result["text/plain"]
