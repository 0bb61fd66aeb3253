"""Which service a command calls, and as whom: from options, else the environment, else what `gavel serve` wrote."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from gavel.cli.option_names import named, note_options
from gavel.client import Client, GavelApiError, ServiceUnreachable

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from gavel.config import Settings

SERVICE = "service.json"
Json = Annotated[bool, typer.Option("--json", help="Print the service's answer as JSON.", callback=note_options)]


app = typer.Typer(
    help="Schedule training jobs on mixed accelerators.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True, slots=True)
class Connection:
    """A service's address and a token, each with its origin for error messages."""

    url: str
    url_source: str
    token: str
    token_source: str


_chosen: dict[str, str | None] = {"url": None, "token": None}
_used: list[Connection] = []


def print_version(wanted: bool = True) -> None:
    """Print the version and end the command, if it is wanted."""
    if not wanted:
        return
    from importlib.metadata import version

    typer.echo(f"gavel {version('gavel')}")
    raise typer.Exit


Version = Annotated[bool, typer.Option("--version", is_eager=True, callback=print_version, help="Print the version.")]


@app.callback()
def _options(
    url: Annotated[str | None, typer.Option(envvar="GAVEL_URL", help="Address of the service.")] = None,
    token: Annotated[str | None, typer.Option(envvar="GAVEL_TOKEN", help="Bearer token.")] = None,
    _version: Version = False,
) -> None:
    """Schedule training jobs on mixed accelerators."""
    _chosen.update(url=url, token=token)


def connect() -> Client:
    """Return a client for the chosen service."""
    connection = resolve(_chosen["url"], _chosen["token"])
    _used.append(connection)
    return Client(connection.url, connection.token)


def used_connection() -> Connection:
    """Return the connection that `connect` has chosen last."""
    return _used[-1]


def is_known() -> bool:
    """Return whether a service was named, or ever ran in this folder."""
    if _chosen["url"]:
        return True
    with refusals():
        return _local_url(settings().state_dir / SERVICE) is not None


def settings(**over: Any) -> "Settings":
    """Return settings from arguments, environment and gavel.toml. End the command if one is out of bounds."""
    from pydantic import ValidationError

    from gavel.config import Settings

    try:
        return Settings(**{name: value for name, value in over.items() if value is not None})
    except ValidationError as error:
        fail("; ".join(_of_setting(each) for each in error.errors()))


def _of_setting(error: "ErrorDetails") -> str:
    """Return what is wrong with one setting, by its name."""
    message = "there is no such setting" if error["type"] == "extra_forbidden" else error["msg"]
    return ": ".join([" ".join(["setting", *map(str, error["loc"])]), message.removeprefix("Value error, ")])


def fail(message: str) -> NoReturn:
    """End the command with a line on stderr and exit code 2."""
    typer.echo(f"gavel: {message}", err=True)
    raise typer.Exit(2)


@contextmanager
def refusals() -> Iterator[None]:
    """End the command with a message when something that runs here, without a service, raises a refusal."""
    from gavel.errors import GavelError

    try:
        yield
    except GavelError as error:
        fail(str(error))
    except PermissionError as error:
        fail(not_readable(error))


def not_readable(error: PermissionError) -> str:
    """Return one line on a file of the service that this user may not read."""
    return f"{error.filename} is another user's: run this as the user of the service (sudo -u gavel ..), or as root"


def explain(error: GavelApiError | ServiceUnreachable) -> str:
    """Return one line for people: what went wrong, and how to correct it."""
    used = _used[-1]
    if isinstance(error, ServiceUnreachable):
        _, is_distrusted, reason = str(error).partition("certificate verify failed: ")
        if is_distrusted:
            return (
                f"the certificate of {used.url} is not trusted here: {reason.partition(' (_ssl')[0]};"
                " let SSL_CERT_FILE name the file with it, or with its authority's"
            )
        return (
            f"nothing answers at {used.url} (from {used.url_source});"
            " start the service with `gavel serve`, or name another with --url or GAVEL_URL"
        )
    if error.status == 401:
        return f"{used.url} does not know the token from {used.token_source}; give another with --token or GAVEL_TOKEN"
    return named(error)


def resolve(url: str | None, token: str | None) -> Connection:
    """Return the service to call, and as whom. End the command with a message where none can be found."""
    url = _with_scheme(url) if url else None
    if url and token:
        return Connection(url, "--url or GAVEL_URL", token, "--token or GAVEL_TOKEN")
    state_dir = settings().state_dir
    with refusals():
        local_url = _local_url(state_dir / SERVICE)
    if url is None and local_url is None:
        fail(f"no service runs in {state_dir}: run `gavel serve`, or name one with --url or GAVEL_URL")
    address = (url, "--url or GAVEL_URL") if url else (str(local_url), str(state_dir / SERVICE))
    if token:
        return Connection(*address, token, "--token or GAVEL_TOKEN")
    if address[0] != local_url:  # the local operator's token is sent to the local service only
        fail(f"no token for {address[0]}: give one with --token or GAVEL_TOKEN")
    return Connection(*address, _local_token(state_dir / "operator.token"), str(state_dir / "operator.token"))


def _with_scheme(url: str) -> str:
    """Return the address with http:// before it if it has no scheme: `localhost:8080` is what people type.

    End the command for a scheme that no service answers.
    """
    scheme, separator, _ = url.partition("://")
    if separator and scheme.lower() not in ("http", "https"):
        fail(f"{url}: the address of a service begins with http:// or https://; correct --url or GAVEL_URL")
    return url if separator else f"http://{url}"


def _local_url(path: Path) -> str | None:
    """Return the address that `gavel serve` wrote, if it ever ran here; else an empty text."""
    return str(json.loads(path.read_text())["url"]) if path.exists() else None


def _local_token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        fail(f"cannot read the operator's token ({error}): give one with --token or GAVEL_TOKEN")
