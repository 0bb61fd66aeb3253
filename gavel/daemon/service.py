"""`gavel serve`: what is opened in which order, and closed again in the other."""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import uvicorn

from api.app import create_app
from api.services import Services
from gavel.backends.answering import answering
from gavel.backends.folder import log_path
from gavel.backends.logs import read_log
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.daemon.keys import TOKEN_FILE, Address, operator_token
from gavel.daemon.leading import Candidate
from gavel.daemon.parts import Parts, report_types
from gavel.daemon.scheduler import Scheduler
from gavel.daemon.telemetry import tracing
from gavel.daemon.wake import Doorbell
from gavel.errors import GavelError, InvalidRequest
from gavel.logs import claim_log, configure_logs
from gavel.policies.registry import load
from gavel.store.database import checked_url
from gavel.store.sql import SqlStore
from gavel.types import JobId

SWITCH_INTERVAL_S = 0.0005  # how long a request waits for the interpreter while a round is decided
STREAMS_LIMIT_S = 2  # how long open event streams may hold up a shutdown


def _say(text: str) -> None:
    print(text, flush=True)


def serve(settings: Settings, announce: Callable[[str], None] = _say, *, is_api_only: bool = False) -> int:
    """Run the service until SIGINT or SIGTERM; 0 after a clean end, 1 if it could not start (with the reason).

    The first process of a database leads its scheduler, others stand by; `is_api_only`: this one never leads.
    """
    with ExitStack() as stack:
        try:
            load(settings.policy, settings.policy_path)
            return _serve(settings, announce, stack, is_api_only)
        except (GavelError, OSError) as error:
            announce(f"gavel could not start: {error}")
            return 1


def _serve(settings: Settings, announce: Callable[[str], None], stack: ExitStack, is_api_only: bool) -> int:
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    configure_logs(stack.enter_context(claim_log(settings.state_dir)))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listener = _listen(settings, stack)
    url = f"http://{settings.host}:{listener.getsockname()[1]}"
    process = _Process(settings, url, announce, stack)
    token = operator_token(process.store, settings.state_dir, process.clock.now_s())
    _announce(settings, url, token, announce)
    if not is_api_only:
        process.begin_to_schedule()
    process.address.offer()
    stack.callback(process.address.withdraw)
    _server(process.services(), stack).run(sockets=[listener])
    announce("stopped; gangs checkpoint at the end of their leases, the next start goes on with every job")
    return 0


class _Process:
    """The store of a process, and what is built over it."""

    def __init__(self, settings: Settings, url: str, announce: Callable[[str], None], stack: ExitStack) -> None:
        self._settings, self._announce, self._stack = settings, announce, stack
        self.clock = SystemClock()
        self.address = Address(settings.state_dir, url)
        self._scheduler: Scheduler | None = None
        self._doorbell = _doorbell(settings, stack)
        self.store = SqlStore(
            settings.url,
            on_change=self._wake_scheduler,
            keep_rounds=settings.keep_rounds,
            keep_events_s=settings.keep_events_s,
            jobs_per_user=settings.queued_jobs_per_user,
        )
        stack.callback(self.store.close)
        self._parts = Parts(settings=settings, clock=self.clock, store=self.store, url=url, doorbell=self._doorbell)

    def begin_to_schedule(self) -> None:
        """Lead, or stand by. Raises what keeps this process from leading though nobody does."""
        self._scheduler = Scheduler(
            self.store.leadership,
            self._parts.open,
            clock=self.clock,
            settings=self._settings,
            after_first=self._lead_began,
            announce=self._announce,
        )
        self._stack.callback(self._scheduler.stop)
        self._scheduler.begin()

    def services(self) -> Services:
        """What the API is built over."""
        settings, scheduler = self._settings, self._scheduler
        watched = Candidate(self.store.leadership, lease_s=settings.lease_of_leader_s)  # by a process that never leads

        def read(job_id: JobId, offset: int, limit_bytes: int) -> tuple[bytes, int]:
            if offset < 0:
                raise InvalidRequest("offset", f"{offset} is below 0; ask for 0 or an offset from an earlier answer")
            with answering("read the log"):
                return read_log(log_path(settings.state_dir, job_id), offset, limit_bytes)

        return Services(
            store=self.store,
            settings=settings,
            clock=self.clock,
            read_log=read,
            is_scheduler_alive=scheduler.is_alive_and_ticking if scheduler else lambda: bool(watched.leader()),
            leads_scheduler=lambda: scheduler is not None and scheduler.leads,
            cluster_notes=self._parts.notes,
        )

    def _lead_began(self) -> None:
        self.address.claim()
        report_types(self._settings.state_dir, self._parts.found, self._announce)

    def _wake_scheduler(self) -> None:
        """Whichever process it is in; on PostgreSQL the store tells other processes itself."""
        self.clock.wake()
        is_ours = self._scheduler is not None and self._scheduler.leads
        if self._doorbell is not None and not is_ours:
            self._doorbell.ring()


def _doorbell(settings: Settings, stack: ExitStack) -> Doorbell | None:
    """Beside the database, if that is a file."""
    place = checked_url(settings.url)
    if place.get_backend_name() != "sqlite":
        return None
    bell = Doorbell(Path(f"{place.database}-wake"))
    stack.callback(bell.close)
    return bell


def _server(services: Services, stack: ExitStack) -> uvicorn.Server:
    traces = stack.enter_context(tracing(services.settings.telemetry_url))
    config = uvicorn.Config(
        create_app(services, traces),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=STREAMS_LIMIT_S,
    )
    return uvicorn.Server(config)


def _listen(settings: Settings, stack: ExitStack) -> socket.socket:
    listener = stack.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else small answers wait for the peer's delayed ack
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        raise OSError(
            f"{settings.host}:{settings.port} cannot be listened on ({error.strerror}); try --port 0"
        ) from None
    listener.listen(1024)
    return listener


def _announce(settings: Settings, url: str, token: str, announce: Callable[[str], None]) -> None:
    announce(f"Gavel listens on {url}  (API: {url}/docs)")
    if "JOURNAL_STREAM" in os.environ:  # systemd keeps what is printed, for others to read
        announce(f"dashboard: {url}/login, with the token in {settings.state_dir.resolve() / TOKEN_FILE}")
    else:
        announce(f"dashboard: {url}/login?token={token}")
    announce(f"state, logs and the operator's token are in {settings.state_dir.resolve()}; Ctrl-C stops")
