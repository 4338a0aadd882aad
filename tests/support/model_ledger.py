"""A slow model of the caching allocator's block structure, independent of the C core.

It follows a trace from before the process's first allocation, so that no past must be
inferred. Each segment is a plain list, searched from the start.  Rounding is the
default one.
"""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass
class Block:
    address: int
    size: int
    requested: int = 0
    state: str = "free"  # or "allocated", "pending"


class Model:
    def __init__(self, settings):
        self.expandable = settings.get("expandable_segments", False)
        limit = settings.get("max_split_size", -1)
        self.max_split = limit if limit >= 0 else float("inf")
        self.blocks = {}  # by address
        self.walls = set()  # addresses that no merge crosses
        self.reserved = 0

    def totals(self):
        in_use = [block for block in self.blocks.values() if block.state != "free"]
        return {
            "allocated_bytes": sum(b.size for b in in_use if b.state == "allocated"),
            "active_bytes": sum(b.size for b in in_use),
            "requested_bytes": sum(b.requested for b in in_use),
            "reserved_bytes": self.reserved,
        }

    def apply(self, event):
        handler = getattr(self, event["action"], None)
        if handler is not None:
            handler(event.get("addr"), event["size"])

    def segment_alloc(self, address, size):
        self.reserved += size
        self.walls |= {address, address + size}
        self.blocks[address] = Block(address, size)

    def segment_free(self, address, size):
        block = self.blocks.pop(address)
        assert (block.size, block.state) == (size, "free")
        self.reserved -= size
        self.walls -= {address, address + size}

    def segment_map(self, address, size):
        self.reserved += size
        self.blocks[address] = Block(address, size)
        self.merge()

    def segment_unmap(self, address, size):
        self.reserved -= size
        (block,) = [
            b for b in self.blocks.values() if b.address <= address < b.address + b.size
        ]
        end = block.address + block.size
        assert block.state == "free" and end >= address + size
        del self.blocks[block.address]
        if block.address < address:
            self.blocks[block.address] = Block(block.address, address - block.address)
        if end > address + size:
            self.blocks[address + size] = Block(address + size, end - address - size)

    def alloc(self, address, requested):
        block = self.blocks[address]
        size = max(512, -(-requested // 512) * 512)
        assert block.state == "free" and block.size >= size
        rest = block.size - size
        if size <= MIB or self.expandable:
            split = rest >= 512
        else:
            split = size < self.max_split and rest > MIB
        if split:
            self.blocks[address + size] = Block(address + size, rest)
            block.size = size
        block.state, block.requested = "allocated", requested

    def free_requested(self, address, size):
        assert self.blocks[address].state == "allocated"
        self.blocks[address].state = "pending"

    def free_completed(self, address, size):
        assert self.blocks[address].state == "pending"
        self.blocks[address] = Block(address, self.blocks[address].size)
        self.merge()

    def merge(self):
        last = None
        for address in sorted(self.blocks):
            block = self.blocks[address]
            if (
                last is not None
                and last.state == block.state == "free"
                and last.address + last.size == address
                and address not in self.walls
            ):
                last.size += block.size
                del self.blocks[address]
            else:
                last = block


def replay(snapshot, device=0):
    """The totals before the first event and after each of a device's events, in bytes."""
    model = Model(snapshot["allocator_settings"])
    totals = [model.totals()]
    for event in snapshot["device_traces"][device]:
        model.apply(event)
        totals.append(model.totals())
    return totals, model
