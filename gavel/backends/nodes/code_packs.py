"""What the bridge gives to nodes that lack code: packs of chunks. Nodes that lack the same are given the same pack."""

from collections.abc import Callable, Iterable
from pathlib import Path

from gavel.backends.code_copy import chunk_path, tree_path
from gavel.backends.nodes.protocol import CodeAsked, CodeGiven, Pack
from gavel.code_tree import digest_of, packed

KEPT = 3  # packs; nodes that ask for the same ask at about the same time
NEW_PER_CALL = 3  # packs; reading more would keep the leases of all nodes waiting


class CodePacks:
    """The packs made of the code versions in the folder `store`; `stored` puts one where nodes can read it."""

    def __init__(self, store: str, stored: Callable[[bytes], Pack]) -> None:
        self._store = store
        self._stored = stored
        self._kept: dict[CodeAsked, CodeGiven] = {}

    def given(self, asked: Iterable[CodeAsked], made: list[CodeAsked]) -> tuple[CodeGiven, ...]:
        """Return what is asked for, as far as it is ready or may still be made in this call.

        `made` has what this call has made so far; what is left out is asked for again.
        """
        return tuple(filter(None, (self._given(each, made) for each in asked)))

    def _given(self, asked: CodeAsked, made: list[CodeAsked]) -> CodeGiven | None:
        given = self._kept.get(asked)
        if given is None and len(made) < NEW_PER_CALL:
            made.append(asked)
            given = self._made(asked)
            if not given.problem:
                self._kept[asked] = given
                while len(self._kept) > KEPT:
                    del self._kept[next(iter(self._kept))]
        return given

    def _made(self, asked: CodeAsked) -> CodeGiven:
        try:
            return CodeGiven(asked=asked, pack=self._stored(read_pack(self._store, asked)))
        except (OSError, ValueError) as problem:
            return CodeGiven(asked=asked, problem=f"the service cannot read code version {asked.digest}: {problem}")


def read_pack(store: str, asked: CodeAsked) -> bytes:
    """Return the list of the version's files, or its chunks that are asked for. Raises OSError, ValueError."""
    if not asked.chunks:
        return _checked(Path(tree_path(store, asked.digest)), asked.digest)
    return packed(_checked(Path(chunk_path(store, chunk)), chunk) for chunk in asked.chunks)


def _checked(path: Path, digest: str) -> bytes:
    content = path.read_bytes()
    if digest_of(content) != digest:
        raise ValueError(f"{path.name} is damaged in its store; submit the job again, which stores it anew")
    return content
