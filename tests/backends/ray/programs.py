"""What gangs over several nodes run in tests: `python programs.py NAME`, standard library only."""

import os
import signal
import socket
import sys
import time


def main(name: str) -> int:
    return {"all-reduce": all_reduce, "trains": trains, "says": says}[name]()


def all_reduce() -> int:
    """Sum of the squares of rank + 1 over all ranks, met at MASTER_ADDR:MASTER_PORT as torch.distributed does."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    mine = (rank + 1) ** 2
    if rank:
        with _connected(address) as link:
            link.sendall(b"%d\n" % mine)
            total = int(link.makefile().readline())
    else:
        with socket.create_server(address) as server:
            links = [server.accept()[0] for _ in range(size - 1)]
            total = mine + sum(int(link.makefile().readline()) for link in links)
            for link in links:
                link.sendall(b"%d\n" % total)
                link.close()
    print(f"sum {total} on node rank {os.environ['NODE_RANK']} local rank {os.environ['LOCAL_RANK']}")
    return 0


def trains() -> int:
    """Until it is told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    print("training", flush=True)
    while True:
        signal.pause()


def says() -> int:
    """Where it runs."""
    print(f"on {os.environ['GAVEL_NODE']}")
    return 0


def _connected(address: tuple[str, int]) -> socket.socket:
    end_s = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(address, timeout=30)
        except ConnectionRefusedError:
            assert time.monotonic() < end_s, "rank 0 does not listen"
            time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
