"""Holds the C files to the order of their rooms, tools/rooms.ini.

    tools/rooms.py OBJECTS

A room is a folder of csrc, or one noun of a folder: core/memlab is memlab.h there.  No file
may include a header of a room above its own, nor use a symbol that one defines: OBJECTS is a folder
with the object of csrc/core/base/base.c at core/base/base.c.o, and so on.  No files may need
each other's symbols in a circle.  Of the C library a file of the core uses what [core] allows
its room, and [state] lists every variable that may change.  Prints what is wrong and ends
with status 1.
"""

import collections
import configparser
import fnmatch
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
SOURCES = (".c", ".h", ".cpp", ".def")


def read_config():
    config = configparser.ConfigParser(delimiters="=")
    config.read(ROOT / "tools" / "rooms.ini")
    return config


def read_order(config):
    """{room: how many it may use}"""
    rooms = [
        line for line in config["csrc"]["order"].split("\n") if line and line[0] != "#"
    ]
    return {room: place for place, room in enumerate(reversed(rooms))}


def outside(config, used, homes, rooms):
    """Symbols that files of the core use, none defines, and their rooms do not allow.
    """
    allowed = {room: names.split() for room, names in config["core"].items()}
    for file, names in used.items():
        if file.parts[0] == "core":
            may = allowed["everywhere"] + allowed.get(rooms[file], [])
            for name in names - homes.keys():
                if not any(fnmatch.fnmatchcase(name, pattern) for pattern in may):
                    yield f"csrc/{file}: uses {name}, which [core] does not allow {rooms[file]}"


def room_of(file, order):
    """The room of FILE, a path in csrc; None: the order has none for it."""
    noun = str(file.with_name(file.name.split(".")[0]))
    return next((room for room in (noun, str(file.parent)) if room in order), None)


def find_header(file, name):
    """The path in csrc of the header that FILE includes as NAME; None: not in csrc."""
    for folder in (file.parent, Path(), Path(file.parts[0]), Path("core")):
        if (CSRC / folder / name).is_file():
            return folder / name
    return None


def includes(file):
    for name in re.findall(r'#\s*include "([^"]+)"', (CSRC / file).read_text()):
        header = find_header(file, name)
        if header is not None:
            yield header


def unlisted(config, variables):
    """Variables of memlab._core that [state] does not list, and entries of it without a
    variable.
    """
    listed = {file: set(names.split()) for file, names in config["state"].items()}
    tables = listed.pop("tables")
    for file, names in variables.items():
        if file.parts[0] in ("core", "py"):
            for name in names - listed.get(str(file), set()):
                if file.parts[0] == "core" or not any(
                    fnmatch.fnmatchcase(name, table) for table in tables
                ):
                    yield f"csrc/{file}: {name} may change, and [state] does not list it"
    for file, names in listed.items():
        for name in names - variables.get(Path(file), set()):
            yield f"csrc/{file}: {name} is listed in [state], but there is none"


def is_linked_with(file, other):
    """Whether FILE's library includes OTHER: each has its component, and the core."""
    return other.parts[0] in (file.parts[0], "core")


def symbols(objects):
    """{file: names that its object defines}, {file: names that it uses}, {file: its
    variables that may change, except a thread's}
    """
    defined = collections.defaultdict(set)
    used = collections.defaultdict(set)
    variables = collections.defaultdict(set)
    for path in objects.rglob("*.o"):
        file = path.relative_to(objects).with_suffix("")
        if not (CSRC / file).is_file():
            continue
        listing = subprocess.run(
            ["nm", "--format=sysv", path], capture_output=True, text=True, check=True
        ).stdout
        for line in listing.splitlines():
            fields = [field.strip() for field in line.split("|")]
            if len(fields) != 7 or fields[0] == "Name":
                continue
            name, _, kind, sort, _, _, section = fields
            if kind == "U":
                used[file].add(name)
            elif kind in "TDBRVW":
                defined[file].add(name)
            constant = section.startswith((".rodata", ".data.rel.ro"))
            if sort == "OBJECT" and not constant:
                variables[file].add(re.sub(r"\.\d+$", "", name))
    return defined, used, variables


def circles(edges):
    """The strongly connected parts of more than one node, each sorted (Tarjan)."""
    number, lowest, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == number[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return found


def main(objects):
    config = read_config()
    order = read_order(config)
    wrong = []
    files = sorted(
        path.relative_to(CSRC) for path in CSRC.rglob("*") if path.suffix in SOURCES
    )
    rooms = {file: room_of(file, order) for file in files}
    wrong += [f"csrc/{file}: in no room of the order" for file in files if not rooms[file]]
    empty = order.keys() - rooms.values()
    wrong += [f"{room}: in the order, but there is no such room" for room in empty]

    def check(file, other, how):
        if rooms[file] and rooms[other] and order[rooms[file]] < order[rooms[other]]:
            wrong.append(f"csrc/{file}: {how} csrc/{other}, of the higher room {rooms[other]}")

    for file in files:
        for header in includes(file):
            check(file, header, "includes")
    defined, used, variables = symbols(objects)
    homes = {name: file for file, names in defined.items() for name in names}
    edges = collections.defaultdict(set)
    for file, names in used.items():
        for name in names & homes.keys():
            if homes[name] != file and is_linked_with(file, homes[name]):
                check(file, homes[name], f"uses {name} of")
                edges[str(file)].add(str(homes[name]))
    wrong += outside(config, used, homes, rooms)
    wrong += unlisted(config, variables)
    wrong += ["a circle: " + ", ".join(circle) for circle in circles(edges)]
    print("\n".join(sorted(wrong)) or "the rooms' doors open one way")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
