"""Data that public programs read, as small as they take: right in shape, wrong in content.

Each function writes below FOLDER, in which the program is started.  No content decides how
much memory a program takes on the phantom device, whose values are zero.  Modules that a
program imports only to look something up are written as stubs beside it.
"""

from __future__ import annotations

import json
import pickle
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = 65


def _tokens(count: int) -> bytes:
    """16 bits each."""
    return struct.pack(f"<{count}H", *(at % TOKENS for at in range(count)))


def _write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def shakespeare_char(folder: Path) -> None:
    """What nanoGPT's data/shakespeare_char/prepare.py makes."""
    into = folder / "data" / "shakespeare_char"
    for name in ("train.bin", "val.bin"):
        _write(into / name, _tokens(4096))
    _write(into / "meta.pkl", pickle.dumps({"vocab_size": TOKENS, "itos": {}, "stoi": {}}))


def llm_c(folder: Path) -> None:
    """Tokens as llm.c's dev/data writes them; and tiktoken, of which one encoding is made."""
    count = 8192
    head = struct.pack("<256i", 20240520, 1, count, *[0] * 253)
    _write(folder / "tokens.bin", head + _tokens(count))
    _write(folder / "tiktoken.py", "def get_encoding(name):\n    return None\n")


def dlrm(folder: Path) -> None:
    """The program makes its data; its logger of benchmarks is on no package index."""
    logger = "class _Logger:\n    def __getattr__(self, name):\n        return self\n"
    logger += "    def __call__(self, *words, **named):\n        return self\n"
    into = folder / "mlperf_logging"
    _write(into / "__init__.py", "")
    _write(into / "mllog" / "__init__.py", logger + "def get_mllogger():\n    return _Logger()\n")
    _write(into / "mllog" / "constants.py", "def __getattr__(name):\n    return name\n")


def mnist(folder: Path, into: str, train: int = 256, test: int = 2000) -> None:
    """The four files of torchvision.datasets.MNIST(INTO)."""
    for name, count in (("train", train), ("t10k", test)):
        start = folder / into / "MNIST" / "raw" / name
        for end, shape, values in (
            ("images-idx3-ubyte", (count, 28, 28), bytes(count * 28 * 28)),
            ("labels-idx1-ubyte", (count,), bytes(at % 10 for at in range(count))),
        ):
            head = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
            _write(start.with_name(f"{name}-{end}"), head + values)


def _png(side: int) -> bytes:
    """A black picture of SIDE by SIDE."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(side * (1 + 3 * side)))
    end = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + end


def images(folder: Path, count: str) -> None:
    """images/{train,val}/CLASS/*.png, COUNT each, as readers of folders of images take."""
    for at in range(int(count)):
        for part in ("train", "val"):
            into = folder / "images" / part / f"class{at % 2}"
            _write(into / f"{at}.png", _png(8))


def words(folder: Path, into: str) -> None:
    """INTO/{train,valid,test}.txt of 1,000 different words."""
    lines = "\n".join(" ".join(f"w{at + 10 * row}" for at in range(10)) for row in range(100))
    for name in ("train.txt", "valid.txt", "test.txt"):
        _write(folder / into / name, lines)


def causal_model(folder: Path) -> None:
    """A Llama in model/, with a tokenizer of words, and texts for it in text/."""
    import tokenizers
    import transformers

    names = {"<unk>": 0, "<s>": 1, "</s>": 2}
    names.update((f"w{at}", 3 + at) for at in range(8000 - 3))
    kind = tokenizers.models.WordLevel(names, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(kind)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    ).save_pretrained(folder / "model")
    config = transformers.LlamaConfig(
        vocab_size=8000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=512,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
    text = json.dumps({"text": " ".join(f"w{at}" for at in range(300))})
    _write(folder / "text" / "train.jsonl", "\n".join([text] * 32))


def unet(folder: Path) -> None:
    """A small UNet2DModel's configuration in model/, and images."""
    config = {
        "_class_name": "UNet2DModel",
        "sample_size": 64,
        "in_channels": 3,
        "out_channels": 3,
        "layers_per_block": 2,
        "block_out_channels": [64, 128, 256],
        "down_block_types": ["DownBlock2D", "DownBlock2D", "AttnDownBlock2D"],
        "up_block_types": ["AttnUpBlock2D", "UpBlock2D", "UpBlock2D"],
    }
    _write(folder / "model" / "config.json", json.dumps(config))
    images(folder, "48")


def cora(folder: Path) -> None:
    """The eight files of torch_geometric.datasets.Planetoid(../data/Planetoid, "Cora")."""
    import numpy
    import scipy.sparse

    nodes, features, classes, tests = 2708, 1433, 7, 1000
    into = folder.parent / "data" / "Planetoid" / "Cora" / "raw"
    hot = numpy.eye(classes, dtype="int32")[numpy.arange(nodes) % classes]
    x = scipy.sparse.eye(nodes, features, dtype="float32", format="csr")
    known = nodes - tests
    for name, value in (
        ("x", x[:140]),
        ("y", hot[:140]),
        ("allx", x[:known]),
        ("ally", hot[:known]),
        ("tx", x[known:]),
        ("ty", hot[known:]),
        ("graph", {at: [(at + 1) % nodes, (at + 7) % nodes] for at in range(nodes)}),
    ):
        _write(into / f"ind.cora.{name}", pickle.dumps(value, 2))
    _write(into / "ind.cora.test.index", "\n".join(str(at) for at in range(known, nodes)))
