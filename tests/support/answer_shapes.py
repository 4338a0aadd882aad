"""Whether an answer has the shape that a type promises."""

import types
import typing


def misfits(value, hint, where="answer"):
    """Where VALUE does not match HINT; exact about keys, and a bool is no int."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if typing.is_typeddict(hint):
        if not isinstance(value, dict):
            yield f"{where} is no dict"
            return
        hints = typing.get_type_hints(hint)
        for key in sorted(hint.__required_keys__ - value.keys()):
            yield f"{where} has no {key!r}"
        for key, part in value.items():
            if key not in hints:
                yield f"{where} has {key!r} besides"
            else:
                yield from misfits(part, hints[key], f"{where}[{key!r}]")
    elif origin in (types.UnionType, typing.Union):
        ways = [list(misfits(value, way, where)) for way in arguments]
        if all(ways):
            yield from min(ways, key=len)
    elif origin is list:
        if type(value) is not list:
            yield f"{where} is no list"
            return
        for i, part in enumerate(value):
            yield from misfits(part, arguments[0], f"{where}[{i}]")
    elif origin is tuple:
        if type(value) is not tuple or len(value) != len(arguments):
            yield f"{where} is no tuple of {len(arguments)}"
            return
        for i, part in enumerate(value):
            yield from misfits(part, arguments[i], f"{where}[{i}]")
    elif origin is dict:
        if type(value) is not dict:
            yield f"{where} is no dict"
            return
        for key, part in value.items():
            yield from misfits(key, arguments[0], f"a key of {where}")
            yield from misfits(part, arguments[1], f"{where}[{key!r}]")
    elif origin is typing.Literal:
        if value not in arguments:
            yield f"{where} is {value!r} and none of {arguments}"
    elif type(value) is not (types.NoneType if hint is None else hint):
        yield f"{where} is {value!r} and no {hint}"


def check(value, hint):
    assert list(misfits(value, hint)) == []
