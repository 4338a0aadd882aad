"""Registers fat binaries with the phantom and asks what each GPU would run of them.

    device_code.py GPUS FAT_BINARIES

Both are JSON: a list of names; a list of fat binaries, each a list of [kind, capability,
flags].  Prints for each GPU what cudaFuncGetAttributes says of a function of each:
[ptxVersion, binaryVersion], or the error's name.  Each GPU has a process of its own.
"""

import ctypes
import json
import os
import struct
import sys

CODE_BYTES = 24
PTX_VERSION, BINARY_VERSION = 8, 9  # ints of cudaFuncAttributes, after three of 8 bytes


def fat_binary(entries):
    """A fat binary as nvcc makes it; older ones have headers of 64 bytes, newer longer."""
    content = b""
    for at, (kind, capability, flags) in enumerate(entries):
        header = 64 if at % 2 == 0 else 112
        content += struct.pack(
            "<HHIQIIHHIIIQ",
            kind,
            257,
            header,
            CODE_BYTES,
            0,
            0,
            8,
            1,
            capability,
            0,
            0,
            flags,
        ).ljust(header, b"\0")
        content += b"\xff" * CODE_BYTES
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def attributes_of(library, function):
    attributes = (ctypes.c_int * 64)()
    error = library.cudaFuncGetAttributes(attributes, function)
    if error:
        launched = library.cudaLaunchKernel(function)
        assert launched == error == library.cudaGetLastError()
        return library.cudaGetErrorName(error).decode()
    assert library.cudaLaunchKernel(function) == 0
    return attributes[PTX_VERSION], attributes[BINARY_VERSION]


def main(gpus, fat_binaries):
    library = ctypes.CDLL(None)
    library.__cudaRegisterFatBinary.restype = ctypes.c_void_p
    library.cudaGetErrorName.restype = ctypes.c_char_p
    kept, functions = [], []
    for number, entries in enumerate(fat_binaries):
        content = ctypes.create_string_buffer(fat_binary(entries))
        wrapper = ctypes.create_string_buffer(
            struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(content), 0)
        )
        kept.append((content, wrapper))
        handle = ctypes.c_void_p(library.__cudaRegisterFatBinary(wrapper))
        # As many as make the phantom's table grow, of which the last is asked about.
        for i in range(3000):
            functions.append(ctypes.c_void_p(0x10000 + 16 * (3000 * number + i)))
            library.__cudaRegisterFunction(handle, functions[-1])
    asked = functions[2999::3000]
    nobody = ctypes.c_void_p(0x999)
    for gpu in gpus:
        child = os.fork()
        if child == 0:
            os.environ["MEMLAB_PHANTOM_GPU"] = gpu
            told = [attributes_of(library, function) for function in [*asked, nobody]]
            print(json.dumps([gpu, told]), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


main(*map(json.loads, sys.argv[1:]))
