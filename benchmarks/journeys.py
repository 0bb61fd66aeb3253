"""What a new user waits for: clone to first finished job, own script to first finished job, few changed lines, exact
resumption, little to upload, a fast start of the next gang.

Real commands against real services on this machine. The rows with training libraries need `make frameworks-env`.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.counting_proxy import CountingProxy
from benchmarks.table import Row, run
from gavel.cli.framework import advice_for
from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.journeys.journey import IS_WHOLE, KINDS, MACHINE, PYTHON, ROOT, SCRIPTS, Journey

LIMIT_S = 600.0
MB = 1_000_000
STOPS = {"keras": (2, 5), "ddp": (7, 32)}
PYTHON_OF_USER = str(PYTHON.parent.parent)


def rows(quick: bool) -> Iterator[Row]:
    yield from clone_to_finished()
    yield from upload()
    for kind in KINDS:
        yield Row(f"{kind}: changed lines", changed_lines(kind), "lines", 6)
    if not IS_WHOLE:
        print("no rows with training libraries: run `make frameworks-env`", file=sys.stderr)
        return
    yield own_script()
    for kind in KINDS[:1] if quick else KINDS:
        yield from resumption(kind)
    yield Row("processes that wanted a core meanwhile (load average)", os.getloadavg()[0], f"on {os.cpu_count()} cores")


def clone_to_finished() -> Iterator[Row]:
    """As the README says: clone, `make serve`, submit. The packages' download and installation is told apart."""
    with tempfile.TemporaryDirectory() as folder:
        clone, began_s = Path(folder) / "gavel", time.perf_counter()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=LIMIT_S)
        lock_began_s = time.perf_counter()
        subprocess.run(
            ["scripts/env.sh", "requirements.lock"], cwd=clone, check=True, timeout=LIMIT_S, stdout=sys.stderr
        )
        packages_s = time.perf_counter() - lock_began_s
        with _made_service(clone) as environment:
            submit = [".venv/bin/gavel", "job", "submit", "--follow", "--steps", "3000", "examples/train.py"]
            subprocess.run(submit, cwd=clone, env=environment, check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
        total_s = time.perf_counter() - began_s
    yield Row("clone to first finished job, with the packages' installation", total_s, "s", 90)
    yield Row("the same without it", total_s - packages_s, "s", 90)


@contextmanager
def _made_service(clone: Path) -> Iterator[dict[str, str]]:
    """`make serve` in the clone on a free port; yields the variables of a user's terminal once it answers."""
    names = ("PATH", "HOME", "LANG", "USER")
    environment = {name: os.environ[name] for name in names if name in os.environ} | {"GAVEL_PORT": "0"}
    service = subprocess.Popen(
        ["make", "serve"], cwd=clone, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        address = clone / ".gavel" / "service.json"
        assert wait_until(address.exists, LIMIT_S), "the service did not start"
        yield environment
    finally:
        os.killpg(service.pid, signal.SIGINT)
        service.wait(timeout=60)


def own_script() -> Row:
    """The first screen of docs/your-first-script.md with a PyTorch script, as fast as the commands are typed."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        project.mkdir()
        shutil.copy(SCRIPTS / "cnn" / "original.py", project / "train.py")
        with ServiceProcess(Path(folder) / "state", {}) as service:
            environment = {
                **MACHINE,
                "HOME": folder,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "VIRTUAL_ENV": PYTHON_OF_USER,
                "GAVEL_URL": service.url,
                "GAVEL_TOKEN": service.operator_token,
            }
            began_s = time.perf_counter()
            commands = "gavel init train.py | patch -p1; gavel run train.py; gavel job submit --follow train.py"
            subprocess.run(
                ["bash", "-euo", "pipefail", "-c", commands],
                cwd=project,
                env=environment,
                check=True,
                timeout=LIMIT_S,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            return Row("own script to first finished job, the commands alone", time.perf_counter() - began_s, "s", 180)


def changed_lines(kind: str) -> int:
    """Lines of the script that `gavel init` makes and the original does not have."""
    text = (SCRIPTS / kind / "original.py").read_text()
    changed = advice_for(text).changed or ""
    return len([line for line in changed.splitlines() if line.strip() and line not in text.splitlines()])


def resumption(kind: str) -> Iterator[Row]:
    """The changed script in one piece and in three, and how long its second process started."""
    ranks = 2 if kind == "ddp" else 1
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = (Journey(kind, Path(folder) / name, ranks) for name in ("whole", "parts"))
        assert whole.run() == [0] * ranks, whole.outputs
        for stop in STOPS.get(kind, (7, 71)):
            assert parts.run(stop) == [75] * ranks, parts.outputs
        assert parts.run() == [0] * ranks, parts.outputs
        pairs = zip(whole.final(), parts.final(), strict=True)
        difference = max(abs(after - before) / abs(before) for before, after in pairs)
        report = json.loads((parts.root / "gangs" / "2" / "reports.jsonl").read_text().splitlines()[0])
    yield Row(f"{kind}: resumed against uninterrupted, relative", difference, "", 1e-6)
    start_s = report["startup_s"] + report["restore_s"]
    yield Row(f"{kind}: start of the next gang, cold", start_s, "s")


def upload() -> Iterator[Row]:
    """Bytes from the client to the service for a directory of 100 MB, at first and with 1 MB changed."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        project.mkdir()
        values = random.Random(0)
        for number in range(20):
            (project / f"part-{number}.bin").write_bytes(values.randbytes(5 * MB))
        with (
            ServiceProcess(Path(folder) / "state", {}) as service,
            CountingProxy(service.url) as proxy,
            Client(proxy.url, service.operator_token) as client,
        ):
            client.store_code(project)
            whole = proxy.sent_bytes
            with (project / "part-7.bin").open("r+b") as changed:
                changed.seek(2 * MB)
                changed.write(values.randbytes(MB))
            client.store_code(project)
    yield Row("a directory of 100 MB, sent at first", whole / MB, "MB")
    yield Row("the same with 1 MB changed", (proxy.sent_bytes - whole) / MB, "MB", 2)


if __name__ == "__main__":
    run("A user's first day", rows)
