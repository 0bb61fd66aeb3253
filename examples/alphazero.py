"""Board generators and evaluators, as in AlphaZero: together they share memory, apart they talk over TCP.

A generator plays many games at a time; for each move it sends all boards to an evaluator and waits for the answer, so
where the two run decides how fast they are. This job runs such a pair twice, on two nodes of its own:

* spread: placed by load balancing alone, which knows nothing of locality: one task a node;
* together: placed by co-location, on one node that has room for both.

By hand (`.venv/bin/python examples/alphazero.py`) it starts a service that poses as two nodes, and submits itself. All
of it is one machine: TCP is the loopback's, and between real machines the difference is larger. The boards are real in
size (Go, 17 planes of 19 x 19), the network is a toy: what is compared is the way to it.
"""

import argparse
import json
import mmap
import os
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gavel.ephemeral.libraries import CoLocation, DataLocality, LoadBalancing, compose
from gavel.ephemeral.libraries.primitives import Library
from gavel_runtime import job

BOARDS, PLANES, SIDE = 256, 17, 19
FEATURES = PLANES * SIDE * SIDE
BYTES = BOARDS * FEATURES
WEIGHTS = np.full(FEATURES, 0.01, dtype=np.float32)
LIMIT_S = 60.0
ROLES = ("evaluator", "generator")

Values = npt.NDArray[np.float32]
Evaluate = Callable[[npt.NDArray[np.uint8]], Values]
Placement = tuple[Library, dict[str, int]]


# --- the evaluator: one layer ------------------------------------------------------------------------------------


def network(boards: npt.NDArray[np.uint8]) -> Values:
    """A value in (-1, 1) for each board."""
    return np.tanh(boards.astype(np.float32) @ WEIGHTS - 0.5)


def evaluate(folder: Path) -> None:
    """Serve one generator: boards come in shared memory, one byte said over the connection, or over it whole."""
    with socket.create_server(("127.0.0.1", 0)) as server, (folder / "boards").open("w+b") as file:
        file.truncate(BYTES)
        shared = np.frombuffer(mmap.mmap(file.fileno(), BYTES), np.uint8).reshape(BOARDS, FEATURES)
        publish(folder / "evaluator.json", {"node": job.node, "port": server.getsockname()[1]})
        server.settimeout(LIMIT_S)
        connection, _ = server.accept()
        with connection:
            private = np.empty((BOARDS, FEATURES), np.uint8)
            while way := connection.recv(1):
                if way == b"t":
                    receive(connection, memoryview(private).cast("B"))
                boards = shared if way == b"s" else private
                connection.sendall(network(boards).tobytes())


# --- the generator ----------------------------------------------------------------------------------------------


def generate(folder: Path, moves: int) -> None:
    """Play `moves` moves in every game, and say how many positions a second were evaluated, and which way they went."""
    found = published(folder / "evaluator.json")
    is_near = found["node"] == job.node  # only then is there memory to share
    with socket.create_connection(("127.0.0.1", found["port"]), timeout=LIMIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        boards, ask = near(folder, connection) if is_near else far(connection)
        began_s = 0.0
        for move in range(moves + 1):
            began_s = began_s if move != 1 else time.perf_counter()  # the first move warms up
            place_stones(boards, move, ask(boards) if move else None)
    rate = moves * BOARDS / (time.perf_counter() - began_s)
    way = "shared memory" if is_near else "TCP"
    publish(folder / "result.json", {"way": way, "nodes": [found["node"], job.node], "positions_per_s": rate})


def place_stones(boards: npt.NDArray[np.uint8], move: int, values: Values | None) -> None:
    """Every game goes on: a stone where its value points."""
    rows = np.arange(BOARDS)
    squares = (move * 31 + rows if values is None else (values * 180 + 180).astype(np.int64) + move) % FEATURES
    boards[rows, squares] = 1


def near(folder: Path, connection: socket.socket) -> tuple[npt.NDArray[np.uint8], Evaluate]:
    """Boards in memory that the evaluator sees too: only a byte travels."""
    with (folder / "boards").open("r+b") as file:
        boards = np.frombuffer(mmap.mmap(file.fileno(), BYTES), np.uint8).reshape(BOARDS, FEATURES)

    def ask(_: npt.NDArray[np.uint8]) -> Values:
        connection.sendall(b"s")
        return answer(connection)

    return boards, ask


def far(connection: socket.socket) -> tuple[npt.NDArray[np.uint8], Evaluate]:
    """Boards of our own, which travel whole for each move."""

    def ask(boards: npt.NDArray[np.uint8]) -> Values:
        connection.sendall(b"t")
        connection.sendall(memoryview(boards).cast("B"))
        return answer(connection)

    return np.zeros((BOARDS, FEATURES), np.uint8), ask


def answer(connection: socket.socket) -> Values:
    """What the evaluator says of each board."""
    values = np.empty(BOARDS, np.float32)
    receive(connection, memoryview(values).cast("B"))
    return values


def receive(connection: socket.socket, into: memoryview) -> None:
    """Fill `into`. Raises EOFError."""
    while into:
        count = connection.recv_into(into)
        if not count:
            raise EOFError("the other side is gone")
        into = into[count:]


# --- the job: the same pairs, placed in several ways --------------------------------------------------------------


def placements(pair: int, nodes: list[str], seed: int) -> dict[str, tuple[Placement, Placement]]:
    """Where evaluator and generator of a pair go, by each way: a library, and what the task requires of it."""
    slot, chance = {f"{job.id}/slot": 1}, random.Random(f"{seed}/{pair}")  # noqa: S311  no secret
    balanced = LoadBalancing(f"{job.id}/lb", slot)
    pairs = LoadBalancing(f"{job.id}/lb-pairs", slot, together=2)
    near = compose(pairs, CoLocation(f"{job.id}/pair-{pair}", slot, tasks=2))
    anywhere = [_at(f"random-{pair}-{role}", chance.choice(nodes)) for role in ROLES]
    fixed = _at(f"static-{pair}", nodes[pair % len(nodes)])
    asked = {"spread": (balanced, balanced), "together": (near, near), "random": anywhere, "static": (fixed, fixed)}
    return {name: tuple((each, _requires(each, slot)) for each in both) for name, both in asked.items()}


def _at(name: str, node: str) -> Library:
    return DataLocality(f"{job.id}/{name}", nodes=(node,))


def _requires(library: Library, slot: dict[str, int]) -> dict[str, int]:
    (asked,) = library.asks()
    return {**slot, **asked.requires}


def play(name: str, moves: int, pairs: int, seed: int) -> list[dict[str, object]]:
    """What the generator of each pair said under one placement; the pairs play at the same time."""
    cluster = job.cluster()
    nodes = sorted(each for each, names in cluster.get_cluster_state().items() if names)
    for node in nodes:
        job.set_resource("slot", 2 * pairs, node)
    folders, tasks = [], []
    for pair in range(pairs):
        folders.append(Path(tempfile.mkdtemp(prefix=f"{name}-", dir=".")))
        program = [sys.executable, __file__, "--folder", str(folders[-1]), "--moves", str(moves), "--role"]
        for role, (library, requires) in zip(ROLES, placements(pair, nodes, seed)[name], strict=True):
            library.apply(cluster)
            tasks.append(job.launch([*program, role], requires=requires))
    codes = [task.wait(LIMIT_S) for task in tasks]
    if any(codes):
        raise SystemExit(f"{name}: exit codes {codes}")
    return [published(folder / "result.json") for folder in folders]


def run(moves: int, pairs: int, names: list[str]) -> None:
    """Each placement in turn on rank 0, for as many steps as the job has; rank 1 only holds the second node."""
    rates: dict[str, list[float]] = {}
    for step in job.steps():
        name = names[step % len(names)]
        if job.is_rank_zero:
            results = play(name, moves, pairs, seed=step)
            rate = sum(float(each["positions_per_s"]) for each in results)
            ways = " and ".join(sorted({str(each["way"]) for each in results}))
            rates.setdefault(name, []).append(rate)
            print(f"{name}: {rate:,.0f} positions/s over {ways}", flush=True)
    means = {name: statistics.mean(each) for name, each in rates.items()}
    for name in [*means][1:]:
        print(f"{name} is {means[name] / means[names[0]]:.2f} times as fast as {names[0]}; all of this is one machine")


# --- by hand ----------------------------------------------------------------------------------------------------


def submit(moves: int) -> int:
    """Start a service of two nodes, run this file as a job of two ranks, print its log; the job's exit code."""
    from gavel.client import Client
    from gavel.demo.service import ServiceProcess

    with tempfile.TemporaryDirectory() as folder:
        settings = {"GAVEL_VIRTUAL_NODES": "2", "GAVEL_ROUND_DURATION_S": "60"}
        service = ServiceProcess(Path(folder) / "state", settings)
        with service, Client(service.url, service.operator_token) as gavel:
            argv = [sys.executable, os.path.abspath(__file__), "--moves", str(moves)]
            submitted = gavel.submit(argv=argv, total_steps=2, scale_factor=2)
            ended = gavel.wait(submitted["id"])
            print("".join(gavel.read_logs(submitted["id"])), end="")
            return 0 if ended["state"] == "COMPLETED" else 1


def publish(path: Path, said: object) -> None:
    """Whoever waits for the file finds all of it. Both tasks have the job's folder: on one machine nodes share it."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(said))
    temporary.rename(path)


def published(path: Path) -> dict[str, object]:
    """What was said there, once it is. Raises TimeoutError."""
    deadline_s = time.monotonic() + LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{path} did not appear")
        time.sleep(0.005)
    found: dict[str, object] = json.loads(path.read_text())
    return found


def main() -> int:
    """The job, one of its tasks, or whoever submits it."""
    parser = argparse.ArgumentParser(description="An AlphaZero-like pair, spread and together.")
    parser.add_argument("--moves", type=int, default=2000, help="moves of each game")
    parser.add_argument("--pairs", type=int, default=1, help="pairs that play at the same time")
    parser.add_argument("--placements", default="spread,together", help="which, in this order, again and again")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.role == "evaluator":
        evaluate(asked.folder)
    elif asked.role == "generator":
        generate(asked.folder, asked.moves)
    elif job.id:
        run(asked.moves, asked.pairs, asked.placements.split(","))
    else:
        return submit(asked.moves)
    return 0


if __name__ == "__main__":
    sys.exit(main())
