"""Code versions for tests, stored as a client does."""

from collections.abc import Mapping

from gavel.backends.code_store import CodeStore
from gavel.code_tree import CHUNK_BYTES, TreeFile, digest_of, packed


def described(path: str, content: bytes) -> TreeFile:
    chunks = tuple(digest_of(content[at : at + CHUNK_BYTES]) for at in range(0, len(content), CHUNK_BYTES))
    return TreeFile(path=path, size_bytes=len(content), chunks=chunks)


def stored(store: CodeStore, contents: Mapping[str, bytes]) -> str:
    """Store these files, as a client does; their digest."""
    digest, missing = store.put([described(path, content) for path, content in contents.items()])
    by_name = {
        digest_of(content[at : at + CHUNK_BYTES]): content[at : at + CHUNK_BYTES]
        for content in contents.values()
        for at in range(0, len(content), CHUNK_BYTES)
    }
    assert store.put_chunks(digest, packed(by_name[name] for name in missing)) == ()
    store.use(digest)
    return digest
