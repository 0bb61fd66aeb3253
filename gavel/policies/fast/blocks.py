"""Processes long arrays in blocks, so that intermediate results stay in the processor's cache."""

from collections.abc import Iterator

LENGTH = 16_384


def blocks(length: int) -> Iterator[slice]:
    """Yield slices that cover `length` entries one after the other."""
    return (slice(begin, begin + LENGTH) for begin in range(0, length, LENGTH))
