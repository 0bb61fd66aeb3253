"""One gang's allocation as the service knows it: its folder, its agents' files, and what Slurm says of it."""

import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gavel.backends import machine
from gavel.backends.nodes.protocol import Group, Order
from gavel.backends.slurm.commands import SlurmJob
from gavel.backends.slurm.letters import Letter, PostBox, Reply

RECORD = "allocation.json"
LATE_S = 10.0  # seconds without a sign of life of an agent
HOLDS = {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"}


@dataclass(slots=True)
class Seat:
    """One agent: the last letter to it, and the newest reply. `is_told`: that reply was handed on already."""

    box: PostBox
    letter: Letter
    reply: Reply | None = None
    heard_s: float = 0.0  # monotonic, of the last change of its reply
    is_told: bool = False

    def write(self, order: Order, *, leaves: bool = False) -> None:
        """Give the agent this order, unless it is the one that it has. Raises OSError."""
        if order == self.letter.order and leaves == self.letter.leaves:
            self.is_told = False
            return
        self.letter = Letter(number=self.letter.number + 1, order=order, leaves=leaves)
        self.is_told = False
        self.box.send(self.letter)

    def look(self) -> None:
        """Read the newest reply."""
        reply = self.box.reply()
        if reply is not None and (self.reply is None or reply != self.reply):
            self.reply, self.heard_s = reply, time.monotonic()

    @property
    def is_late(self) -> bool:
        """Return True if it gives no sign of life."""
        return time.monotonic() - self.heard_s > LATE_S

    @property
    def has_answered(self) -> bool:
        """Return True once the reply is to the last letter."""
        return self.reply is not None and self.reply.answer is not None and self.reply.number == self.letter.number


@dataclass(slots=True, kw_only=True)
class Allocation:
    """One gang's allocation. It has several jobs of Slurm where its nodes hold different numbers of its workers."""

    name: str
    folder: Path
    bundles: tuple[tuple[str, str, int], ...]
    seats: dict[str, Seat]
    jobs: dict[int, SlurmJob] = field(default_factory=dict)
    end_boottime_s: float | None = None  # when Slurm ends it, in our boottime
    has_launched: bool = False
    gone: str = ""  # why Slurm has ended it; "": it has not
    leaving_s: float | None = None  # monotonic, since when it is unwanted
    made_s: float = field(default_factory=time.monotonic)
    is_cancelled: bool = False

    @classmethod
    def make(cls, parent: Path, group: Group, epoch: int) -> "Allocation":
        """Return a new one, its files written. Raises OSError."""
        _, job_id, generation = group.name.split("/")
        folder = parent / f"{job_id}.{generation}.{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700, parents=True)
        first = Letter(number=1, order=Order(epoch=epoch))
        seats = {}
        for node, _, _ in group.bundles:
            seats[node] = Seat(PostBox(folder / node), first)
            seats[node].box.make(first)
        machine.write_json(str(folder / RECORD), {"name": group.name, "bundles": group.bundles})
        return cls(name=group.name, folder=folder, bundles=group.bundles, seats=seats)

    @classmethod
    def read(cls, folder: Path) -> "Allocation | None":
        """Return the one that an earlier service made there; None if its files are not whole."""
        try:
            record = machine.read_object(folder / RECORD) or {}
            bundles = tuple((str(node), str(resource), int(units)) for node, resource, units in record["bundles"])
            name = str(record["name"])
        except (KeyError, TypeError, ValueError):
            return None
        seats = {}
        for node, _, _ in bundles:
            box = PostBox(folder / node)
            letter = box.letter()
            if letter is None:
                return None
            seats[node] = Seat(box, letter)
            seats[node].look()
        made = cls(name=name, folder=folder, bundles=bundles, seats=seats)
        made.has_launched = any(seat.letter.number > 1 for seat in seats.values())
        return made

    @property
    def is_ready(self) -> bool:
        """Return True once every agent has spoken."""
        if self.gone:
            return False
        for seat in self.seats.values():
            if seat.reply is None:
                seat.look()
        return all(seat.reply is not None and seat.reply.answer is not None for seat in self.seats.values())

    @property
    def problem(self) -> str:
        """Return why an agent cannot work; "" if all can, as far as is known."""
        return next((seat.reply.problem for seat in self.seats.values() if seat.reply and seat.reply.problem), "")

    @property
    def held(self) -> bool:
        """Return True if Slurm counts its resources as used."""
        return any(job.state in HOLDS for job in self.jobs.values())

    def by_units(self) -> dict[tuple[str, int], list[str]]:
        """Return the nodes with the same number of units of the same resource: each is a job of Slurm."""
        alike: dict[tuple[str, int], list[str]] = {}
        for node, resource, units in self.bundles:
            alike.setdefault((resource, units), []).append(node)
        return alike

    def take(self, jobs: Mapping[int, SlurmJob], now_boottime_s: float) -> None:
        """Take what Slurm says of its jobs; one that it does not list any more has ended."""
        self.jobs = {job_id: jobs.get(job_id) or _purged(job) for job_id, job in self.jobs.items()}
        self.jobs |= {job.job_id: job for job in jobs.values() if job.comment == str(self.folder)}
        left = [job.left_s for job in self.jobs.values() if job.left_s is not None]
        if left:
            self.end_boottime_s = now_boottime_s + min(left)
        ended = [job for job in self.jobs.values() if job.has_ended]
        if ended and not self.gone:
            self.gone = _why(ended)

    @property
    def is_over(self) -> bool:
        """Return True once it is unwanted and nothing of it is left in Slurm."""
        return self.leaving_s is not None and bool(self.gone) and all(job.has_ended for job in self.jobs.values())

    def output(self) -> str:
        """Return the last words of what its script printed."""
        texts = [path.read_text(errors="replace") for path in sorted(self.folder.glob("output*"))]
        return " ".join(" ".join(texts).split())[-200:]

    def leave(self) -> None:
        """Ask its agents to end everything and free their nodes. Raises OSError."""
        self.leaving_s = time.monotonic()
        for seat in self.seats.values():
            epoch = seat.letter.order.epoch
            seat.write(Order(epoch=epoch), leaves=True)

    def remove(self) -> None:
        """Delete its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _purged(job: SlurmJob) -> SlurmJob:
    return job if job.has_ended else replace(job, state="COMPLETED", reason="Slurm does not list it any more")


def _why(ended: Iterable[SlurmJob]) -> str:
    """Return which of its jobs has ended, and how, for people."""
    job = min(ended, key=lambda job: job.state == "COMPLETED")
    reason = "" if job.reason in ("", "None") else f" ({job.reason})"
    return f"Slurm ended its allocation {job.job_id}: {job.state}{reason}"
