"""Where inputs are fetched from: HTTP servers, and what fsspec's drivers reach."""

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

import httpx

from gavel.backends.input_reading import CHUNK_BYTES, TAGS, Source, SourceFile
from gavel.backends.inputs import local_path
from gavel.backends.preparation import PreparationFailed

PACKAGES = {
    **{"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "abfs": "adlfs"},
    **{"hf": "huggingface_hub", "ftp": "fsspec", "sftp": "paramiko"},
}
"""The package that each scheme needs on the nodes, besides http and https."""
ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
AZURE, AZURE_SUFFIX = "AZURE_STORAGE_CONNECTION_STRING", "core.windows.net"
ACCOUNTS = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
REDIRECTS_MAX = 10
TIMEOUT = httpx.Timeout(60.0, connect=15.0)


def source_problem(source: str, hosts: Sequence[str]) -> str:
    """Return why an input cannot be taken from there, and what to write instead; "" if it can."""
    if local_path(source):
        return ""
    parts = urlsplit(source)
    if parts.scheme not in ("http", "https", *PACKAGES) or "::" in source:
        schemes = ", ".join(f"{each}://" for each in ("https", "http", *PACKAGES))
        return f"{source} is neither an absolute path nor a URL that begins with file:/// or one of {schemes}"
    if not parts.hostname or parts.username or parts.password:
        return "name a host, without a user or password in the URL: give these as secrets (--secret)"
    if not _may_reach(parts.hostname, hosts):
        return f"the service fetches nothing from {parts.hostname} (data_hosts); an operator allows hosts"
    package = PACKAGES.get(parts.scheme, "")
    if package and not all(importlib.util.find_spec(each) for each in ("fsspec", package)):
        return f"{parts.scheme}:// needs the package {package} on the nodes; an operator installs it beside Gavel"
    return ""


def _may_reach(host: str, hosts: Sequence[str]) -> bool:
    return any(fnmatchcase(host.lower(), pattern.lower()) for pattern in hosts)


@contextmanager
def open_source(url: str, hosts: Sequence[str]) -> Iterator[Source]:
    """Yield what the URL names. Servers may redirect to these hosts only, and a store's own address has to be one."""
    if urlsplit(url).scheme in PACKAGES:
        for name, host in _stated_hosts(os.environ):
            if not _may_reach(host, hosts):
                raise PreparationFailed(f"{name} names {host}, from where the service fetches nothing")
        yield FilesystemSource(url)
        return

    def check(request: httpx.Request) -> None:
        if not _may_reach(request.url.host, hosts):
            raise PreparationFailed(f"it leads to {request.url.host}, from where the service fetches nothing")

    with httpx.Client(
        timeout=TIMEOUT,
        follow_redirects=True,
        max_redirects=REDIRECTS_MAX,
        headers={"Accept-Encoding": "identity"},
        event_hooks={"request": [check]},
    ) as client:
        yield HttpSource(client, url)


def _stated_hosts(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the hosts that variables of drivers name, with the variable: their requests go there."""
    yield from ((name, _host_of(env[name])) for name in ENDPOINTS if env.get(name))
    stated = (each.partition("=") for each in env.get(AZURE, "").split(";"))
    fields = {name.strip().lower(): value.strip() for name, _, value in stated}
    yield from ((AZURE, _host_of(value)) for name, value in fields.items() if name.endswith("endpoint"))
    if suffix := fields.get("endpointsuffix", AZURE_SUFFIX).removeprefix(AZURE_SUFFIX):
        yield AZURE, suffix
    for name, account in ((AZURE, fields.get("accountname", "")), *((each, env.get(each, "")) for each in ACCOUNTS)):
        if not re.fullmatch(r"[\w-]*", account, re.ASCII):  # it is the beginning of the host's name
            yield name, account


def _host_of(address: str) -> str:
    return urlsplit(address if "://" in address else f"//{address}").hostname or address


class HttpSource:
    """A file of an HTTP server. It is looked up with GET, which servers take that allow one signed request only."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client, self._url = client, url

    def files(self) -> list[SourceFile]:
        """Return the one file, with its ETag or the time of its last change."""
        with self._answer() as answer:
            headers = answer.headers
            is_plain = headers.get("Content-Encoding", "identity") == "identity"
            size = headers.get("Content-Length", "") if is_plain else ""
            tag = headers.get("ETag") or headers.get("Last-Modified") or ""
            return [SourceFile("", int(size) if size.isdigit() else None, tag)]

    def read(self, file: SourceFile) -> Iterator[bytes]:
        """Yield the content."""
        with self._answer() as answer:
            yield from answer.iter_bytes(CHUNK_BYTES)

    @contextmanager
    def _answer(self) -> Iterator[httpx.Response]:
        try:
            with self._client.stream("GET", self._url) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise OSError(f"the server answered {answer.status_code} {answer.reason_phrase}")
                yield answer
        except httpx.HTTPError as problem:
            raise OSError(f"{urlsplit(self._url).netloc}: {problem or type(problem).__name__}") from problem


class FilesystemSource:
    """A file or a folder that a driver of fsspec reaches."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self._filesystem, self._root = url_to_fs(url)

    def files(self) -> list[SourceFile]:
        """Return the file, or all files below the folder."""
        self._filesystem.invalidate_cache()
        if self._filesystem.isfile(self._root):
            return [_described("", self._filesystem.info(self._root))]
        start = len(self._root.rstrip("/")) + 1
        there: dict[str, dict[str, Any]] = self._filesystem.find(self._root, detail=True)
        if not there:
            raise FileNotFoundError("there is nothing")
        return [_described(path[start:], status) for path, status in sorted(there.items())]

    def read(self, file: SourceFile) -> Iterator[bytes]:
        """Yield the content of a file."""
        path = f"{self._root.rstrip('/')}/{file.path}" if file.path else self._root
        with self._filesystem.open(path, "rb", block_size=16 * CHUNK_BYTES, cache_type="readahead") as opened:
            while chunk := opened.read(CHUNK_BYTES):
                yield chunk


def _described(path: str, status: dict[str, Any]) -> SourceFile:
    size = status.get("size")
    tag = next((str(status[name]) for name in TAGS if status.get(name)), "")
    return SourceFile(path, None if size is None else int(size), tag)
