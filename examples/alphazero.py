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
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gavel.ephemeral.libraries import CoLocation, LoadBalancing
from gavel.ephemeral.libraries.primitives import Library
from gavel_runtime import job

BOARDS, PLANES, SIDE = 256, 17, 19
FEATURES = PLANES * SIDE * SIDE
BYTES = BOARDS * FEATURES
WEIGHTS = np.full(FEATURES, 0.01, dtype=np.float32)
LIMIT_S = 60.0

Values = npt.NDArray[np.float32]
Evaluate = Callable[[npt.NDArray[np.uint8]], Values]


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


# --- the job: the same pair, placed in two ways -----------------------------------------------------------------


def placements() -> dict[str, tuple[Library, dict[str, int]]]:
    """Each with what a task requires. A node takes two tasks, so both placements are possible."""
    slot = {f"{job.id}/slot": 1}
    return {
        "spread": (LoadBalancing(f"{job.id}/lb", slot), {**slot, f"{job.id}/lb": 1}),
        "together": (CoLocation(f"{job.id}/pair", slot, tasks=2), {**slot, f"{job.id}/pair": 1}),
    }


def play(name: str, moves: int) -> dict[str, object]:
    """What the generator said of one placement."""
    library, requires = placements()[name]
    cluster = job.cluster()
    for node in {each for each, names in cluster.get_cluster_state().items() if names}:
        job.set_resource("slot", 2, node)
    library.apply(cluster)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir="."))
    program = [sys.executable, __file__, "--folder", str(folder), "--moves", str(moves), "--role"]
    tasks = [job.launch([*program, role], requires=requires) for role in ("evaluator", "generator")]
    codes = [task.wait(LIMIT_S) for task in tasks]
    if any(codes):
        raise SystemExit(f"{name}: exit codes {codes}")
    return published(folder / "result.json")


def run(moves: int) -> None:
    """Both placements on rank 0; rank 1 only holds the second node."""
    names, rates = tuple(placements()), {}
    for step in job.steps():
        if job.is_rank_zero:
            result = play(names[step], moves)
            rates[names[step]] = result["positions_per_s"]
            print(f"{names[step]}: {result['positions_per_s']:,.0f} positions/s over {result['way']}", flush=True)
    if len(rates) == len(names):
        print(f"together is {rates['together'] / rates['spread']:.2f} times as fast; all of this is one machine")


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
    parser.add_argument("--role", choices=("evaluator", "generator"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.role == "evaluator":
        evaluate(asked.folder)
    elif asked.role == "generator":
        generate(asked.folder, asked.moves)
    elif job.id:
        run(asked.moves)
    else:
        return submit(asked.moves)
    return 0


if __name__ == "__main__":
    sys.exit(main())
