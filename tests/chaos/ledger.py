"""What clients of a service that fails were told, kept outside of it, and what must be true of it at the end."""

import json
import os
import random
from pathlib import Path

from gavel.client import Client, GavelApiError, ServiceUnreachable
from gavel.demo.service import wait_until
from tests.trains import trains

TRAINS = trains(0.02)
RETRIES = 100  # of a job: the loop kills its ranks
ENDED = ("COMPLETED", "FAILED", "CANCELLED")


class ClientLedger:
    """Submits with keys until they are acknowledged, and writes each acknowledgement to a file before it goes on."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._chance = path, random.Random(seed)
        self.steps: dict[str, int] = {}  # of jobs, by idempotency key
        self.acknowledged: dict[str, str] = {}  # id by key
        self.refused = 0  # calls without an acknowledgement

    def submit(self, client: Client) -> str | None:
        """Submit what is not acknowledged yet, or else something new; return its id, None if nobody acknowledged it."""
        waiting = [key for key in self.steps if key not in self.acknowledged]
        key = waiting[0] if waiting else f"key-{len(self.steps)}"
        steps = self.steps.setdefault(key, self._chance.randint(20, 120))
        try:
            job = client.submit(argv=TRAINS, total_steps=steps, name=key, max_retries=RETRIES, idempotency_key=key)
        except (GavelApiError, ServiceUnreachable):
            self.refused += 1
            return None
        self._note(key, job["id"])
        return job["id"]

    def _note(self, key: str, job_id: str) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "id": job_id}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.acknowledged[key] = job_id

    def check(self, client: Client, limit_s: float) -> None:
        """Every acknowledged job is there once, and completes with all its steps; no other job is there."""
        while self.acknowledged.keys() != self.steps.keys():
            assert self.submit(client), "all is well again, and a submit is refused"
        is_over = wait_until(lambda: all(job["state"] in ENDED for job in client.jobs()), limit_s, 0.5)
        jobs = {job["name"]: job for job in client.jobs()}
        assert is_over, [(job["state"], job["message"]) for job in jobs.values() if job["state"] not in ENDED]
        assert len(jobs) == len(list(client.jobs())), "no key has made two jobs"
        assert {name: job["id"] for name, job in jobs.items()} == self.acknowledged
        assert {name: job["steps_done"] for name, job in jobs.items()} == self.steps
        assert {job["state"] for job in jobs.values()} == {"COMPLETED"}
