"""A job that knows nothing of Gavel: it keeps its own file and goes on from it.

Gavel may end it at any step (SIGTERM, when its lease is over) and start it again later, elsewhere. All it needs is a
folder that outlives it, which GAVEL_CHECKPOINT_DIR names; run by hand it uses the working directory.
"""

import json
import os
from pathlib import Path

STEPS = int(os.environ.get("GAVEL_TOTAL_STEPS", "300"))
FOLDER = Path(os.environ.get("GAVEL_CHECKPOINT_DIR", "."))
STATE = FOLDER / "plain.json"


def load() -> dict[str, float]:
    """The state to go on from."""
    return json.loads(STATE.read_text()) if STATE.exists() else {"step": 0, "estimate": 1.0}


def save(state: dict[str, float]) -> None:
    """Replace the file at once, so that a kill leaves the old one or the new one, never half of one."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    temporary = STATE.with_suffix(".tmp")
    with temporary.open("w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(STATE)


state = load()
while state["step"] < STEPS:
    for _ in range(20_000):  # the square root of 2 by many small steps
        state["estimate"] -= 1e-5 * (state["estimate"] ** 2 - 2)
    state["step"] += 1
    if state["step"] % 20 == 0 or state["step"] == STEPS:
        save(state)
print("estimate", state["estimate"])
