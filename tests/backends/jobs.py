"""What conformance checks run, docs/gang-protocol.md followed by hand: `python jobs.py BEHAVIOUR`."""

import json
import os
import signal
import sys
import time


def main(behaviour: str) -> int:
    """Exit code of a job that behaves so."""
    if behaviour == "trains":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
        while True:
            signal.pause()
    if behaviour == "finishes":
        report = {"sequence": 1, "kind": "finished", "step": int(os.environ["GAVEL_TOTAL_STEPS"]), "steps": 0}
        if os.environ["GAVEL_RANK"] == "0":
            with open(os.environ["GAVEL_GANG_DIR"] + "/reports.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(report) + "\n")
        return 0
    if behaviour == "dies":
        os.kill(os.getpid(), signal.SIGABRT)
    if behaviour == "fails":
        print("about to fail")
        return 3
    assert behaviour == "stubborn"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        os.fork()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
