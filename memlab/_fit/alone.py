"""One rank of many, alone in its process: what the other ranks would have answered.

Owns the stand-ins for torch's stores and for Gloo, and the small data that ranks send each
other.  NCCL is the phantom device's, where no rank waits for another.  A rank receives what
the sender, which runs in a process of its own before, was seen to send; else what it sent
itself, as on the phantom device.
"""

import hashlib
import importlib
import os
import sys

from memlab import _core

# In the folder of a run: the rank that must run before this one.
WANTED = "wanted"
# Of integers that ranks send each other, as of those that the phantom device computes.
_MOST_BYTES = 1 << 20
# What is read of the others where nothing is known: NCCL's unique identifier has this size.
_UNKNOWN = bytes(128)
# Threads of ProcessGroupNCCL that ask the store, which is Python's: they could meet the
# interpreter's end.
_VARIABLES = {
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_PROPAGATE_ERROR": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}


def launched(words):
    """(whether it is a module, the program and its arguments) of torchrun's WORDS.

    Raises ValueError where torchrun starts no Python program.
    """
    from torch.distributed.run import get_args_parser

    options = get_args_parser().parse_args(words)
    if options.no_python:
        raise ValueError("torchrun --no-python: give a Python program")
    return options.module, [options.training_script, *options.training_script_args]


class World:
    """The ranks around this one.

    rank, size: of the world.  folder: of this run.  kept: the folder with what ranks were
    seen to send.  ran: ranks that ran before, or wait for this one.
    """

    def __init__(self, rank, size, folder, kept, ran):
        self.rank, self.size = rank, size
        self.joined = False  # whether the program made the process group
        self._folder, self._kept, self._ran = folder, kept, set(ran)
        self._counts = {}  # channel -> messages so far
        self._batch = None  # what a batch receives when it ends; None: there is no batch

    def install(self):
        """Replaces the parts of torch.distributed that wait for other ranks."""
        os.environ.update(_VARIABLES)
        import torch.distributed as dist

        # By its name: torch.distributed has a function of the same name.
        rendezvous = importlib.import_module("torch.distributed.rendezvous")
        store = _store_class(dist.Store, self)
        gloo = _gloo_class(dist)
        for module in (dist, dist.distributed_c10d, rendezvous):
            for name, stand_in in (
                ("TCPStore", store),
                ("FileStore", store),
                ("HashStore", store),
                ("ProcessGroupGloo", gloo),
            ):
                if hasattr(module, name):
                    setattr(module, name, stand_in)
        group = dist.ProcessGroup
        group.broadcast = self._broadcasting(group.broadcast)
        group.scatter = self._scattering(group.scatter)
        group.gather = _gathering(group.gather)
        group.send = self._sending(group.send)
        group.recv = self._receiving(group.recv)
        group._start_coalescing = self._starting(group._start_coalescing)
        group._end_coalescing = self._ending(group._end_coalescing)
        group.monitored_barrier = lambda *arguments, **options: None

    # --- What ranks send each other ---------------------------------------------------

    def _broadcasting(self, original):
        def broadcast(group, *arguments, **options):
            work = original(group, *arguments, **options)
            root = _root(arguments, options)
            if root is not None:
                for tensor in arguments[0]:
                    self._pass(group, "broadcast", root, tensor)
            return work

        return broadcast

    def _scattering(self, original):
        def scatter(group, *arguments, **options):
            work = original(group, *arguments, **options)
            root = _root(arguments, options)
            if root is None or len(arguments) < 2:
                return work
            outputs, inputs = arguments[0], arguments[1]
            if not all(_is_kept(tensor) for tensor in outputs):
                return work
            for i, output in enumerate(outputs):
                if group.rank() == root:
                    for to, tensor in enumerate(inputs[i]):
                        self._keep((group.group_name, "scatter", root, to), tensor)
                    output.copy_(inputs[i][root])
                else:
                    channel = group.group_name, "scatter", root, group.rank()
                    self._fill(channel, _global_rank(group, root), output)
            return work

        return scatter

    def _sending(self, original):
        def send(group, tensors, to, *arguments, **options):
            for tensor in tensors:
                if _is_kept(tensor):
                    self._keep((group.group_name, "send", group.rank(), to), tensor)
            return original(group, tensors, to, *arguments, **options)

        return send

    def _receiving(self, original):
        def recv(group, tensors, sender, *arguments, **options):
            work = original(group, tensors, sender, *arguments, **options)
            for tensor in tensors:
                if _is_kept(tensor):
                    channel = group.group_name, "send", sender, group.rank()
                    said = channel, _global_rank(group, sender), tensor
                    if self._batch is None:
                        self._fill(*said)
                    else:
                        self._batch.append(said)
            return work

        return recv

    def _starting(self, original):
        def start(group, *arguments):
            self._batch = []
            return original(group, *arguments)

        return start

    def _ending(self, original):
        def end(group, *arguments):
            work = original(group, *arguments)
            # NCCL receives here, and writes over what was there.
            batch, self._batch = self._batch, None
            for said in batch:
                self._fill(*said)
            return work

        return end

    def _pass(self, group, what, root, tensor):
        """Keeps TENSOR at the rank ROOT of GROUP; fills it at the others."""
        if not _is_kept(tensor):
            return
        channel = group.group_name, what, root
        if group.rank() == root:
            self._keep(channel, tensor)
        else:
            self._fill(channel, _global_rank(group, root), tensor)

    def _path(self, channel, count):
        name = hashlib.sha256(repr((channel, count)).encode()).hexdigest()
        return os.path.join(self._kept, name)

    def _next(self, channel):
        count = self._counts[channel] = self._counts.get(channel, 0) + 1
        return count

    def _keep(self, channel, tensor):
        torch = sys.modules["torch"]
        torch.save(tensor.detach().cpu(), self._path(channel, self._next(channel)))

    def _fill(self, channel, sender, tensor):
        """Puts the next message of CHANNEL from the rank SENDER into TENSOR, or the last
        one where the sender ended earlier.
        """
        torch = sys.modules["torch"]
        count = self._next(channel)
        if sender not in self._ran and not os.path.exists(self._path(channel, count)):
            _core.write_file(os.path.join(self._folder, WANTED), str(sender).encode())
            os._exit(0)
        for number in range(count, 0, -1):
            path = self._path(channel, number)
            if os.path.exists(path):
                kept = torch.load(path, weights_only=True)
                if (kept.shape, kept.dtype) == (tensor.shape, tensor.dtype):
                    tensor.copy_(kept)
                    return


def _is_kept(tensor):
    return (
        not (tensor.is_floating_point() or tensor.is_complex())
        and tensor.numel() * tensor.element_size() <= _MOST_BYTES
    )


def _root(arguments, options):
    """The rank in its group that sends, or gets all; None: not called as torch itself does,
    with lists of tensors and options.
    """
    if not arguments or not all(isinstance(given, list) for given in arguments[:-1]):
        return None
    return getattr(options.get("opts", arguments[-1]), "rootRank", None)


def _global_rank(group, rank):
    return sys.modules["torch.distributed"].get_global_rank(group, rank)


def _gathering(original):
    def gather(group, *arguments, **options):
        work = original(group, *arguments, **options)
        if _root(arguments, options) is not None and len(arguments) > 1:
            for to, tensor in zip(arguments[0], arguments[1]):
                for output in to if _is_kept(tensor) else ():
                    output.copy_(tensor)
        return work

    return gather


# --- Stand-ins --------------------------------------------------------------------------


def _gloo_class(dist):
    """A ProcessGroupGloo that is torch's own fake one: tensors of the host stay as they
    are, and of all_gather each rank's part is this rank's.
    """
    fake = sys.modules["torch"]._C._distributed_c10d.FakeProcessGroup
    fake._set_sequence_number_for_group = lambda self: None

    class Kind(type):
        def __instancecheck__(cls, instance):
            return isinstance(instance, fake)

    class ProcessGroupGloo(metaclass=Kind):
        def __new__(cls, store, rank, size, *arguments, **options):
            return fake._create_internal(rank, size)

    return ProcessGroupGloo


def _store_class(base, world):
    """A store in this process alone, in which the others have done what this rank did."""
    made = []  # a store's Python part must live as long as its C++ part

    class Store(base):
        # Stores of one process, by whatever name, are one.
        values, counts = {}, {}

        def __init__(self, *arguments, **options):
            super().__init__()
            made.append(self)
            world.joined = True

        host, port = "localhost", 0

        def clone(self):
            return self

        def set(self, key, value):
            self.values[key] = value.encode() if isinstance(value, str) else bytes(value)

        def get(self, key):
            if key in self.values:
                return self.values[key]
            if key in self.counts:
                return str(self.counts[key]).encode()
            return self._own(key)

        def _own(self, key):
            """What this rank said where another one is asked for."""
            words = key.split("/")
            for i, word in enumerate(words):
                number = "".join(filter(str.isdigit, word))
                if number:
                    own = word.replace(number, str(world.rank))
                    found = self.values.get("/".join([*words[:i], own, *words[i + 1 :]]))
                    if found is not None:
                        return found
            return _UNKNOWN

        def add(self, key, value):
            self.counts[key] = self.counts.get(key, 0) + value
            # Who adds nothing asks whether all have come.
            return self.counts[key] * (1 if value else world.size)

        def check(self, keys):
            return all(key in self.values or key in self.counts for key in keys)

        def wait(self, keys, timeout=None):
            pass

        def compare_set(self, key, expected, desired):
            found = self.values.get(key)
            if found is None or found == _bytes(expected):
                found = self.values[key] = _bytes(desired)
            return found

        def delete_key(self, key):
            return self.values.pop(key, self.counts.pop(key, None)) is not None

        def num_keys(self):
            return len(self.values.keys() | self.counts.keys())

        def multi_get(self, keys):
            return [self.get(key) for key in keys]

        def multi_set(self, keys, values):
            for key, value in zip(keys, values):
                self.set(key, value)

        def append(self, key, value):
            self.values[key] = self.values.get(key, b"") + _bytes(value)

        def has_extended_api(self):
            return True

    return Store


def _bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)
