"""A Jupyter kernel with a CUDA device."""

import pytest


@pytest.fixture(scope="module")
def one_kernel(device_environment, tmp_path_factory):
    # Which skips where there is no Jupyter.
    from jupyter_kernel import Kernel

    folder = tmp_path_factory.mktemp("kernel")
    # Not the user's settings of IPython, nor another kernel installed as python3.
    environment = {
        **device_environment,
        "MEMLAB_PHANTOM_QUIET": "1",
        "IPYTHONDIR": str(folder / "ipython"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(folder / "jupyter"))
        kernel = Kernel(environment, folder)
    kernel.folder = folder
    yield kernel
    kernel.end()


@pytest.fixture
def kernel(one_kernel):
    """The kernel with nothing but torch and the magics, and with an empty cache."""
    started = one_kernel.run(
        "%reset -f\nimport torch\ntorch.cuda.empty_cache()\n%load_ext memlab"
    )
    assert started.error is None, started
    return one_kernel
