"""Those who use the demo's service and session: HTTP clients that follow the curve, and a browser of the session."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from gavel.client import Client, GavelApiError, ServiceUnreachable
from gavel.demo.mixed.workload import Piece, sent_at_s

CLIENTS = 8
ANSWER_LIMIT_S = 5.0
LEARN_EVERY_S = 0.25  # where the endpoints are; a replica that leaves has longer than that
LOOK_EVERY_S = 2.0
STOP_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: when it was sent, in seconds of the curve, and how long the answer took; "" or why there was none."""

    at_s: float
    took_s: float
    failure: str = ""


class Load:
    """Clients that ask the endpoints of a service in turn, as often as the curve says, until it ends."""

    def __init__(self, client: Client, service_id: str, curve: Sequence[Piece]) -> None:
        self._client, self._service_id, self.curve = client, service_id, curve
        self.asked: list[Asked] = []
        self._addresses: tuple[str, ...] = ()
        self._numbers = count()
        self._is_over = threading.Event()
        self._learn()
        self.began_s = time.monotonic()
        parts = [threading.Thread(target=self._learn_on, name="endpoints")]
        parts += [threading.Thread(target=self._ask_on, name="client") for _ in range(CLIENTS)]
        self._threads = parts

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for each in self._threads:
            each.join()

    @property
    def at_s(self) -> float:
        """Return how many seconds of the curve are over."""
        return time.monotonic() - self.began_s

    def _learn_on(self) -> None:
        while not self._is_over.wait(LEARN_EVERY_S):
            try:
                self._learn()
            except (GavelApiError, ServiceUnreachable):
                continue  # those that were known before are asked

    def _learn(self) -> None:
        self._addresses = tuple(each["address"] for each in self._client.endpoints(self._service_id))

    def _ask_on(self) -> None:
        """Send what is next on the curve when its time has come, until all is sent."""
        with httpx.Client(timeout=ANSWER_LIMIT_S, headers={"Connection": "close"}, trust_env=False) as own:
            while (at_s := sent_at_s(self.curve, number := next(self._numbers))) is not None:
                if self._is_over.wait(max(0.0, at_s - self.at_s)):
                    return
                self._ask(own, number)

    def _ask(self, own: httpx.Client, number: int) -> None:
        at_s, failure = self.at_s, ""
        try:
            there = self._addresses
            own.get(f"http://{there[number % len(there)]}/").raise_for_status()
        except ZeroDivisionError:
            failure = "no endpoint was there"
        except httpx.HTTPError as error:
            failure = repr(error)
        self.asked.append(Asked(at_s, self.at_s - at_s, failure))


class Visits:
    """Somebody who looks at the session now and then, through `gavel port-forward`."""

    def __init__(self, url: str, token: str, job_id: str, port: int, output: Path) -> None:
        options = ("--url", url, "--token", token)
        command = [sys.executable, "-u", "-m", "gavel.cli", *options, "port-forward", job_id, f"{port}:0"]
        self._errors = output.open("wb")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        self.seen, self.failures = 0, list[str]()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="visits")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._process.terminate()
        self._process.wait(STOP_LIMIT_S)
        self._thread.join()
        self._errors.close()
        if self._process.stdout:
            self._process.stdout.close()

    def _look_on(self) -> None:
        assert self._process.stdout
        address = self._process.stdout.readline().partition(" ")[0]
        with httpx.Client(timeout=ANSWER_LIMIT_S, follow_redirects=True, trust_env=False) as own:
            while not self._is_over.wait(LOOK_EVERY_S):
                try:
                    own.get(address).raise_for_status()
                    self.seen += 1
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    self.failures.append(repr(error))
