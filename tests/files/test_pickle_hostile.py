"""Hostile pickles: nothing of them runs, is imported or opened, and bombs stay small."""

import io
import os
import pickle
import pickletools
import random
import struct
import textwrap
from collections import OrderedDict
from pathlib import Path

import pytest
from pickles import load_bytes, run

import memlab

DATA = Path(__file__).parents[1] / "data"
REAL = sorted(DATA.glob("*.pickle.gz"))


class Calls:
    """Pickles to a call of os.system."""

    def __reduce__(self):
        return os.system, ("echo harm",)


class Keywords:
    """Pickles to a construction with keyword arguments."""

    def __new__(cls, **keywords):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"a": 1}


def payloads():
    """Pickles that run code or import when pickle loads them, by every known way."""
    objects = [Calls(), Keywords(), textwrap.TextWrapper(), OrderedDict(a=1), os.system]
    for protocol in (2, 3, 4, 5):
        for value in objects:
            yield pickle.dumps(value, protocol)
    shell = b"cos\nsystem\n"
    command = b"X\x09\0\0\0echo harm"
    for body in (
        shell + command + b"\x85R.",
        b"\x8c\x02os\x8c\x06system\x93" + command + b"\x85R.",
        b"\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93" + command + b"\x85R.",
        b"(X\x09\0\0\0echo harmios\nsystem\n.",
        b"(" + shell + command + b"o.",
        shell + command + b"\x85\x81.",
        shell + command + b"\x85}\x92.",
        b"cbuiltins\nexec\nX\x08\0\0\0import os\x85R.",
        b"c__builtin__\neval\nX\x01\0\0\x001\x85R.",
        b"cimportlib\nimport_module\nX\x02\0\0\0os\x85R.",
        b"cbuiltins\ngetattr\ncbuiltins\n__import__\nX\x08\0\0\0__call__\x86R.",
        b"ctorch.serialization\nload\nX\x05\0\0\0x.zip\x85R.",
        b"cnumpy\nload\n)R.",
        b"crunpy\n_run_code\n)R.",
        b"ccollections\nOrderedDict\n)R.",
        b"ccopyreg\n_reconstructor\n(ccollections\nOrderedDict\n"
        b"cbuiltins\nobject\nNtR}b.",
        b"\x82\x01.",
        b"\x83\x01\x00.",
        b"\x84\x01\0\0\0.",
        b"Pfile:///etc/passwd\n.",
        b"X\x01\0\0\0xQ.",
        b"}}b.",
        b"\x97.",
        b"\x97\x98.",
        b"S'text'\n.",
        b"I01\n.",
        b"V\\u0041\n.",
        b"T\x01\0\0\0x.",
        b"U\x01x.",
        b"\x8f.",
        b"(\x91.",
        b"N0N.",
        b"(N1N.",
        b"N2\x86.",
        b"Np0\n.",
        b"g0\n.",
    ):
        for protocol in (2, 3, 4, 5):
            yield bytes([0x80, protocol]) + body
    # torch's zipped format is not a pickle at all, but holds one.
    yield b"PK\x03\x04" + bytes(26) + b"archive/data.pkl" + b"\x80\x02cos\nsystem\n."


def test_payloads_are_harmful_to_pickle_itself():
    """The corpus would be no test if pickle.loads refused it too."""
    found = []

    class Watcher(pickle.Unpickler):
        def find_class(self, module, name):
            found.append((module, name))
            raise LookupError

    for data in payloads():
        try:
            Watcher(io.BytesIO(data)).load()
        except Exception:
            pass
    assert len(found) > 50
    assert ("os", "system") in {(m.replace("posix", "os"), n) for m, n in found}


def test_nothing_is_imported_called_or_opened(tmp_path):
    """Zero audit events of any kind while hostile files load: each payload alone, within
    a snapshot, and after ten thousand random changes of a real one."""
    corpus = list(payloads())
    snapshot = memlab.load(REAL[0])
    snapshot["segments"] = snapshot["segments"][:2]
    snapshot["device_traces"] = [trace[:20] for trace in snapshot["device_traces"]]
    whole = pickle.dumps(snapshot, 4)
    cuts = [op[2] for op in pickletools.genops(whole)]
    seed = 20260
    choose = random.Random(seed)
    for data in list(corpus):
        at = choose.choice(cuts[2:])
        corpus.append(whole[:at] + data[2:] + whole[at:])
    for _ in range(10_000):
        data = bytearray(whole)
        for _ in range(choose.randint(1, 4)):
            at = choose.randrange(2, len(data))
            kind = choose.randrange(4)
            if kind == 0:
                data[at] = choose.randrange(256)
            elif kind == 1:
                del data[at : at + choose.randint(1, 40)]
            elif kind == 2:
                data[at:at] = choose.choice(corpus[:150])[2:]
            else:
                data[at:at] = choose.randbytes(choose.randint(1, 8))
        corpus.append(bytes(data))
    file = tmp_path / "corpus"
    file.write_bytes(b"".join(struct.pack("<I", len(d)) + d for d in corpus))
    result = run(
        """
        import json, struct, sys
        from memlab import _core, SnapshotError
        data = open(sys.argv[1], "rb").read()
        seen, count, refused, at = [], 0, 0, 0
        watching = False
        def hook(event, arguments):
            if watching:
                seen.append(event)
        sys.addaudithook(hook)
        try:
            json.loads("{")
        except ValueError:
            pass
        watching = True
        while at < len(data):
            length = struct.unpack_from("<I", data, at)[0]
            item = data[at + 4:at + 4 + length]
            at += 4 + length
            for read in _core.load, _core.Recording.from_bytes:
                count += 1
                try:
                    read(item)
                except SnapshotError:
                    refused += 1
        watching = False
        print(json.dumps([count, refused, seen]))
        """,
        str(file),
    )
    count, refused, seen = result
    assert seen == [], f"seed {seed}"
    assert count == 2 * len(corpus)
    # Some changes hit a byte of a number or a name, and the rest of the file stands.
    assert refused > count // 2


@pytest.mark.parametrize("data", list(payloads()), ids=lambda data: repr(data[:24]))
def test_payloads_are_refused_by_name(data):
    with pytest.raises(memlab.SnapshotError) as caught:
        load_bytes(data)
    text = str(caught.value)
    assert "opcode 0x" in text or "protocol 2 or newer" in text


def laughs():
    """Thirty lists, each of two references to the one before."""
    body = b"\x80\x04]\x94" + b"".join(b"](h%ch%ce\x94" % (i, i) for i in range(30))
    return body.replace(b"\x80\x04]", b"\x80\x04(]", 1) + b"t."


BOMBS = {
    "a memo index of 2**31": b"\x80\x04Nr\xff\xff\xff\x7f.",
    "a string of 2**63 bytes": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f.",
    "an integer of 2**31 bytes": b"\x80\x04\x8b\xff\xff\xff\x7f.",
    "a frame of 2**63 bytes": b"\x80\x04\x95" + b"\xff" * 7 + b"\x7fN.",
    "billion laughs": laughs(),
    "a million empty lists": b"\x80\x04](" + b"]" * 2**20 + b"e.",
    "a million dicts": b"\x80\x04](" + b"}" * 2**20 + b"e.",
    "a million nested lists": b"\x80\x04" + b"]" * 2**20 + b"a" * (2**20 - 1) + b".",
    "a million nested tuples": b"\x80\x04)" + b"\x85" * 2**20 + b".",
    "a million marks": b"\x80\x04" + b"(" * 2**20 + b".",
    "a million memos": b"\x80\x04](" + b"N\x94" * 2**19 + b"e.",
    "a million references": b"\x80\x04(]\x94](" + b"h\x00" * 2**19 + b"et.",
    "a million events of one": b"\x80\x04}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces]("
    b"](}(X\x06\0\0\0actionX\x05\0\0\0allocX\x04\0\0\0addrK\x01X\x04\0\0\0sizeK"
    b"\x01u\x94" + b"h\x00" * 2**20 + b"eeu.",
    "deep stacks of one frame": b"\x80\x04}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](}("
    b"X\x06\0\0\0framesX\x05\0\0\0alloc(}\x94" + b"h\x00" * 2**20 + b"leueeu.",
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("reader", ["load", "Recording.from_bytes"])
def test_bombs_stay_small(name, reader, tmp_path):
    """Peak memory within 8 times the file and 16 MiB, whether it loads or not."""
    file = tmp_path / "bomb"
    file.write_bytes(BOMBS[name])
    before, after = run(
        """
        import gc, json, resource, sys, operator
        from memlab import _core, SnapshotError
        read = operator.attrgetter(sys.argv[2])(_core)
        data = open(sys.argv[1], "rb").read()
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        before = peak()
        try:
            read(data)
        except SnapshotError:
            pass
        print(json.dumps([before, peak()]))
        """,
        str(file),
        reader,
    )
    assert after - before <= 8 * len(BOMBS[name]) + (16 << 20)


def test_shared_structure_costs_its_nodes_only():
    loaded = load_bytes(laughs())
    assert len(loaded) == 31
    assert loaded[30][0] is loaded[30][1] is loaded[29]
