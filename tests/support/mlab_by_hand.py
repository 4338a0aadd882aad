"""A writer of .mlab files, from docs/FORMAT.md alone: no number here comes from memlab.

Every field of an event is written whole, so that its bytes are its value.
"""

import struct

CHUNK = 1 << 13
NONE = 2**64 - 1  # of a note's value: not known


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def record(kind, *fields):
    """A record that is not an event: tag 15."""
    data = b"".join(fields)
    return struct.pack("<BI", 15 | kind << 4, len(data)) + data


def leb128(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def string(number, text):
    data = text.encode()
    return record(0, struct.pack("<III", number, len(data), 0), data)


def code(number, name, filename, line):
    return record(1, struct.pack("<IIIIii", number, name, filename, 0, line, 0))


def stack(number, callers, of_code, line, module=0):
    fields = number, callers, of_code, line, 0, module, 0
    return record(2, struct.pack("<IIIIQII", *fields))


def module(number, type_name):
    return record(3, struct.pack("<II", number, type_name))


def context(frees, *, flags, thread, autograd_thread, stream, pool, metadata):
    """The context of the following events."""
    fields = flags, thread, autograd_thread, stream, *pool, metadata
    return bytes([11 | frees << 4, 1 | 2 | 4 | 8 | 16 | 32]) + struct.pack(
        "<BHHQIII", *fields
    )


def unused(events):
    return sparse(0, events + 1)


def sparse(column, number, lower=0):
    """LOWER: the event's number in the column from 0 to 3 with the same two low bits."""
    low = column & 3
    one = bytes([13 | 3 << 4 | low << 6])
    if column < 4:
        return one + struct.pack("<I", number)
    pages = bytes([13 | 1 << 4, 0, 0]) * (column >> 2)
    return pages + one + struct.pack("<I", number) + sparse(low, lower)


def state(*, time, addr, size, stack, block, flags, thread, action):
    """The base of the following events; fields without an argument are 0."""
    return bytes([14]) + struct.pack(
        "<8Q9I2H4B", time, addr, size, block, *[0] * 4, *stack, *[0] * 6, thread,
        0, 0, *flags, action, 0,
    )  # fmt: skip


def same_event(action, *, time):
    """TIME since the previous event, of which this is a copy except for its class's
    fields.
    """
    return action.to_bytes(3, "little") + struct.pack("<H", time)


def event(action, *, time, addr, size, of=0, origin=0, block, sequence=0, node=0):
    """TIME since the event before."""
    codes = action | 3 << 4 | 7 << 6 | 7 << 9 | 3 << 12 | 3 << 14 | 7 << 16 | 5 << 19
    fields = time, addr, size, of, origin, block, sequence, node
    return (codes | 3 << 22).to_bytes(3, "little") + struct.pack("<QQQIIQQI", *fields)


def clock(ticks, unix_ns):
    return record(0, struct.pack("<QQ", ticks, unix_ns))


def start(device, events):
    rules = struct.pack("<Q16I", 2**64 - 1, *[0] * 16)
    return record(1, struct.pack("<Q", events), rules, struct.pack("<IBBH", device, 0, 1, 0))


def segment(device, addr, size, *, stream=0, small=0, expandable=0):
    fields = addr, size, stream, 0, 0, device, small, expandable, 0
    return record(2, struct.pack("<QQQQQIBBH", *fields))


def block(device, addr, size, requested, state):
    return record(3, struct.pack("<QQQIBBH", addr, size, requested, device, state, 0, 0))


def started(device):
    return record(4, struct.pack("<Q", device))


def setting(key, kind, *, integer=0, real=0.0, text=""):
    fields = struct.pack("<qd16QIcBH", integer, real, *[0] * 16, len(key), kind, 0, 0)
    return record(5, fields, key.encode(), text.encode())


def owner(category, device, addr, events, path, name):
    numbers = leb128(addr) + leb128(events) + leb128(len(path))
    return record(6, bytes([category, device]), numbers, path.encode(), name.encode())


def note(kind, ticks, values=(), *, device=-1, thread=0, name=""):
    values = [*values, *[0] * (7 - len(values))]
    fields = struct.pack("<Q7QiHBB", ticks, *values, device, thread, kind, 0)
    return record(7, fields, name.encode())


def object_name(number, name):
    return record(8, struct.pack("<Q", number), name.encode())


def last_use(device, addr, events):
    return record(9, bytes([device]) + leb128(addr) + leb128(events))


def code_line(file, function, qualname, line, first, last, text):
    names = [each.encode() for each in (file, function, qualname)]
    fields = 0, line, first, last, *map(len, names), 0, 0, 0
    return record(10, struct.pack("<qIII6H", *fields), *names, text.encode())


def origin_frame(number, caller, line, function, file):
    fields = struct.pack("<IIqII", number, caller, line, len(function), 0)
    return record(11, fields, function.encode(), file.encode())


def origin_line(line, frame, path):
    return record(12, struct.pack("<qII", line, frame, 0), path.encode())


def trim(ticks, steps, first_step):
    return record(13, struct.pack("<QQQ", ticks, steps, first_step))


def trim_lane(number, *, index, before, dropped=0, peak=(0, 0, 0, 0)):
    """BEFORE: of its events, or of the control lane's records, those before chunk INDEX;
    DROPPED: of a device's events those since its first start."""
    fields = number, 0, index, before, 0, dropped, 0, *peak
    return record(14, struct.pack("<IIQQQQQ4Q", *fields))


def with_stack(record, number):
    """A segment or block in a start of its own."""
    size = struct.unpack_from("<I", record, 1)[0]
    return record[:1] + struct.pack("<I", size + 4) + record[5:] + struct.pack("<I", number)


def chunk(kind, device, records, index=0, before=0):
    """BEFORE: events of the lane before the first here; the number of a start."""
    data = b"".join(records)
    head = struct.pack(
        "<IHBBIHHQQQQ16x", 0x4B434C4D, 1, kind, 1, CHUNK, device, 0, index, before, 0,
        len(data) | crc32c(data) << 32,
    )  # fmt: skip
    return (head + data).ljust(CHUNK, b"\0")


def head(events, *, keys, context, control, stop=0, state=2, required=1, start=0):
    """EVENTS: of each device how many came; CONTROL: how many records; START: the number
    of the one that counts."""
    data = struct.pack(
        "<8sIIQQIIQQ16s64sBBBx", b"\x89MLAB\r\n\x1a", 1, 0x01020304, required, 0, CHUNK,
        keys, 10**18, 7, b"cuda", b"host", 1, context + 1, 0,
    )  # fmt: skip
    data += struct.pack("<IIIII", crc32c(data), state, stop, 0, 3)
    data += struct.pack("<Q16sII", 0, bytes(16), 5, 8)
    counts = [[0, 0] for _ in range(65)]
    for device, count in enumerate(events):
        counts[device][0] = count
    counts[64][0] = control
    data += b"".join(struct.pack("<QQ48x", *each) for each in counts)
    return (data + struct.pack("<Q", start)).ljust(CHUNK, b"\0")


def file(lanes, control, **options):
    """LANES: of each device how many events and its records; CONTROL: records."""
    pieces = [
        head([events for events, _ in lanes], control=len(control), **options),
        chunk(1, 0, control),
    ]
    pieces += [chunk(0, device, records) for device, (_, records) in enumerate(lanes)]
    return b"".join(pieces)
