"""A pack of code in Ray's object store: Ray copies it to the node that reads it, from whichever node has it already."""

from dataclasses import dataclass

import ray


@dataclass(frozen=True, slots=True)
class StoredPack:
    """A pack that goes from Ray's memory once nobody has this any more, or the process that made it is gone."""

    ref: "ray.ObjectRef[bytes]"

    def read(self, limit_s: float) -> bytes:
        """Return the pack; raises what Ray raises."""
        return ray.get(self.ref, timeout=limit_s)


def stored(body: bytes) -> StoredPack:
    """Return the bytes as a pack."""
    return StoredPack(ray.put(body))
