"""Builds one bridge for a wheel, run by the CPython that it is for.

python tools/wheels/bridge.py TORCH FOLDER: TORCH is a package of torch of which include,
version.py and lib are enough; prints the file made in FOLDER, or that was there.
"""

import importlib.util
import sys
from pathlib import Path

file = Path(__file__).resolve().parents[2] / "memlab" / "_native" / "bridge.py"
spec = importlib.util.spec_from_file_location("memlab_bridge", file)
bridge = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bridge)

build = bridge.TorchBuild(sys.argv[1])
product = Path(sys.argv[2], bridge.file_name(bridge.bridge_key(build)))
if not product.exists():
    bridge.build(product, build)
print(product)
