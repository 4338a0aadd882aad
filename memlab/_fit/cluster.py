"""The tries of a sweep on a cluster: `memlab fit --cluster`.

Owns the way from an Executor to tasks of Ray, which places them, and starts one again whose
worker was lost.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import socket
import sys

from memlab._errors import Error
from memlab._export.recording_tables import package
from memlab._version import __version__

# Further workers that a try gets if its worker is lost.
_RETRIES = 3
_AUTH_MODE = "RAY_AUTH_MODE"
# For what is under way to end when a sweep is given up.
_GRACE_SECONDS = 10


@contextlib.contextmanager
def executor(address):
    """An executor of the Ray cluster at ADDRESS, as ray.init takes it; what is under way
    ends with it.  Raises memlab.Error without Ray or a cluster.
    """
    ray = package("ray", "--cluster")
    at_end = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, configure_logging=False)
    except Exception as error:
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise Error(f"no Ray cluster at {address}: {first}: {_what_to_do(address)}") from None
    # Ray's would end this process at once, and leave what is under way.
    signal.signal(signal.SIGTERM, at_end)
    tasks = _Tasks(ray)
    # Ray prints to it what it lost; the answer is to stand there alone.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            yield tasks
        finally:
            tasks.shutdown(cancel_futures=True)
            ray.shutdown()


def _what_to_do(address):
    if not address.startswith("ray://"):
        return (
            "on its first machine run ray start --head, and give its HOST:PORT, or auto on a "
            "machine of the cluster"
        )
    # Where a token exists, Ray's cluster asks for it; its client sends it only if told to, and
    # without it waits in vain.
    mode = "" if os.environ.get(_AUTH_MODE) == "token" else (
        f"if the cluster asks for a token, as ray start says, set {_AUTH_MODE}=token here; "
    )
    return (
        f"{mode}on its first machine run ray start --head --ray-client-server-port PORT, and "
        "give ray://HOST:PORT; HOST:PORT of the cluster itself does on a machine of it"
    )


class _Tasks(concurrent.futures.Executor):
    """Each call is a task, which takes one processor of a machine."""

    def __init__(self, ray):
        self._ray = ray
        self._call = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call)
        self._under_way = set()

    def submit(self, call, /, *arguments):
        future = concurrent.futures.Future()
        reference = self._call.remote(os.getcwd(), __version__, call, arguments)
        self._under_way.add(reference)

        def finish(done):
            self._under_way.discard(reference)
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(self._error(error))

        reference.future().add_done_callback(finish)
        return future

    def _error(self, error):
        """What ERROR of Ray's means: the call's own, or that no worker ended it."""
        if isinstance(error, self._ray.exceptions.RayTaskError):
            return error.cause
        first = str(error).strip().partition("\n")[0]
        return Error(f"its worker was lost {_RETRIES + 1} times: {first}")

    def shutdown(self, wait=True, *, cancel_futures=False):
        under_way = list(self._under_way)
        if cancel_futures:
            for reference in under_way:
                # As Ctrl-C there: the run's processes and files go.
                self._ray.cancel(reference)
        if wait and under_way:
            self._ray.wait(under_way, num_returns=len(under_way), timeout=_GRACE_SECONDS)


def _call(folder, version, call, arguments):
    """In a worker: CALL(*ARGUMENTS) in FOLDER, for a sweep of memlab's VERSION."""
    # By which Ray tells that the sweep was given up: ignored where Ray was started with &.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    host = socket.gethostname()
    if version != __version__:
        raise Error(f"{host} has memlab {__version__}, the sweep {version}: install the same")
    try:
        os.chdir(folder)
    except OSError as error:
        raise Error(
            f"{host}: {folder}: {error.strerror}: share the folder with all machines, or let "
            "Ray copy it: ray job submit --working-dir . -- memlab fit --cluster auto ..."
        ) from None
    return call(*arguments)
