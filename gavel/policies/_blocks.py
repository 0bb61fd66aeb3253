"""Long arrays a block at a time, so that what is computed on the way to an answer stays in the processor's cache."""

from collections.abc import Iterator

LENGTH = 16_384


def blocks(length: int) -> Iterator[slice]:
    """Slices that cover `length` entries one after the other."""
    return (slice(begin, begin + LENGTH) for begin in range(0, length, LENGTH))
