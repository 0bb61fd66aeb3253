"""The part of `gavel doctor` about the ways into the service: its clock, its database, its address, its certificate."""

import ctypes
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from gavel.config import Settings
from gavel.errors import GavelError
from gavel.types.findings import Finding

LOOPBACK = ("127.0.0.1", "localhost", "::1")
NOT_SYNCHRONIZED = 0x0040  # STA_UNSYNC of adjtimex(2)
CERTIFICATE_DAYS = 14


def ways_in(settings: Settings) -> Iterator[Finding]:
    """Yield what is to be known of clock, database, address and certificate. Nothing is changed."""
    yield clock(_kernel_status())
    yield database(settings)
    yield address(settings)
    if settings.tls_cert_file:
        yield certificate(settings.tls_cert_file, datetime.now(UTC))


def clock(kernel_status: int | None) -> Finding:
    """Return whether something keeps the clock right, by the kernel's status (None: it does not say)."""
    if kernel_status is None:
        return Finding(about="clock", verdict="note", text="the kernel does not say whether it is kept right")
    if kernel_status & NOT_SYNCHRONIZED:
        text = "nothing keeps it right: install chrony or systemd-timesyncd; rounds and records follow it"
        return Finding(about="clock", verdict="note", text=text)
    return Finding(about="clock", verdict="ok", text="it is kept right by a time server")


def database(settings: Settings) -> Finding:
    """Return whether the database answers and has this version's tables, or will be made at the first start."""
    from gavel.store import maintenance
    from gavel.store.database import checked_url

    try:
        place = checked_url(settings.url)
        if place.get_backend_name() == "sqlite" and not Path(str(place.database)).exists():
            return Finding(about="database", verdict="ok", text=f"{place.database} will be made at the first start")
        outdated = maintenance.outdated(settings.url)
    except GavelError as error:
        return Finding(about="database", verdict="problem", text=str(error))
    except PermissionError as error:
        return Finding(about="database", verdict="problem", text=f"{error.filename} is another user's")
    if outdated:
        return Finding(about="database", verdict="note", text=outdated)
    return Finding(about="database", verdict="ok", text=f"{place.render_as_string()} answers, its tables are current")


def address(settings: Settings) -> Finding:
    """Return whether passwords and tokens travel encrypted to the address that the settings give the service."""
    public = urlsplit(settings.public_url)
    if settings.public_url and public.scheme == "https":
        return Finding(about="address", verdict="ok", text=f"browsers come to {settings.public_url}")
    if settings.tls_cert_file:
        return Finding(about="address", verdict="ok", text=f"https on {settings.host}, port {settings.port}")
    if settings.host in LOOPBACK and (not settings.public_url or public.hostname in LOOPBACK):
        return Finding(about="address", verdict="ok", text=f"{settings.host}: only this machine reaches it")
    text = (
        "tokens travel unencrypted: give --tls-cert and --tls-key, or put a proxy with TLS in front"
        ' and set public_url = "https://.."'
    )
    return Finding(about="address", verdict="problem", text=text)


def certificate(path: Path, now: datetime) -> Finding:
    """Return until when the certificate is good."""
    from cryptography import x509

    try:
        end = x509.load_pem_x509_certificates(path.read_bytes())[0].not_valid_after_utc
    except (OSError, ValueError) as error:
        return Finding(about="certificate", verdict="problem", text=f"{path} cannot be read: {error}")
    days = (end - now).days
    if days < CERTIFICATE_DAYS:
        text = f"{path} {'has ended' if days < 0 else 'ends'} on {end:%Y-%m-%d}: replace it and restart the service"
        return Finding(about="certificate", verdict="problem", text=text)
    return Finding(about="certificate", verdict="ok", text=f"{path} is good until {end:%Y-%m-%d}")


def _kernel_status() -> int | None:
    """Return the status word of the kernel's clock; None where it cannot be asked."""
    timex = ctypes.create_string_buffer(512)  # struct timex: all zero changes nothing; `status` follows five longs
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None or adjtimex(timex) < 0:
        return None
    return ctypes.c_int.from_buffer(timex, 5 * ctypes.sizeof(ctypes.c_long)).value
