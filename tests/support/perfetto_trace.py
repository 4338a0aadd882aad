"""A decoder of Perfetto traces, written from the specification."""

import collections

from exports import written


def fields(data):
    """The fields of a Protocol Buffers message: (number, value) in order."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            length = varint()
            assert at + length <= len(data)
            yield key >> 3, data[at : at + length]
            at += length


def packed(data, **names):
    """One value by each name, of the field with its number."""
    values = dict(fields(data))
    return {name: values[number] for name, number in names.items() if number in values}


class Trace:
    """What a Perfetto trace says, by the field numbers of its .proto files."""

    def __init__(self, data):
        self.tracks = {}
        self.counters = collections.defaultdict(list)
        self.slices = []  # (track name, name, begin, end or None, annotations)
        self.instants = []
        names, values, opened = {}, {}, collections.defaultdict(list)
        for number, packet in fields(data):
            assert number == 1
            parts = packed(
                packet, time=8, event=11, interned=12, flags=13, track=60, sequence=10
            )
            assert parts["sequence"] == 1
            for kind, entry in fields(parts.get("interned", b"")):
                iid, text = packed(entry, iid=1, text=2).values()
                {2: names, 29: values}[kind][iid] = text.decode()
            if "track" in parts:
                self._add_track(parts["track"])
            if "event" in parts:
                self._add_event(parts["time"], parts["event"], names, values, opened)
        for stack in opened.values():
            self.slices += [(*one[:3], None, one[3]) for one in stack]

    def _add_track(self, data):
        track = packed(data, id=1, name=2, process=3, thread=4, parent=5, counter=8)
        name = track.get("name")
        if "process" in track:
            name = packed(track["process"], name=6)["name"]
        if "thread" in track:
            name = packed(track["thread"], name=5)["name"]
        assert track["id"] not in self.tracks
        assert track.get("parent", 0) in {0, *self.tracks}
        self.tracks[track["id"]] = (name.decode(), track.get("parent", 0))

    def _add_event(self, time, data, names, values, opened):
        event = packed(data, type=9, iid=10, track=11, name=23, value=30)
        track = self.tracks[event["track"]][0]
        if event["type"] == 4:
            self.counters[self.path(event["track"])].append((time, event["value"]))
            return
        if event["type"] == 2:
            track, name, begin, said = opened[event["track"]].pop()
            assert begin <= time
            self.slices.append((track, name, begin, time, said))
            return
        name = names[event["iid"]] if "iid" in event else event["name"].decode()
        said = {}
        for number, annotation in fields(data):
            if number == 4:
                one = packed(annotation, number=3, text=6, address=7, key=10, iid=17)
                key = one.pop("key").decode()
                ((kind, value),) = one.items()
                value = values[value] if kind == "iid" else value
                said[key] = value.decode() if kind == "text" else value
        if event["type"] == 3:
            self.instants.append((track, name, time, said))
        else:
            opened[event["track"]].append((track, name, time, said))

    def path(self, track):
        name, parent = self.tracks[track]
        return (*self.path(parent), name) if parent else (name,)


def trace_of(recording, tmp_path):
    return Trace(written(recording, tmp_path, "x.pftrace").read_bytes())
