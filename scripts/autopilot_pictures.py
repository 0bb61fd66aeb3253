"""Takes the picture of the autopilot's page: the decisions of a simulated run, as a service would have stored them.

usage: .venv/bin/python -m scripts.autopilot_pictures [FOLDER]      (needs Chromium: apt-get install chromium)
"""

import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import uvicorn
from playwright.sync_api import sync_playwright

from api.access.auth import digest, new_token
from api.app import Services, create_app
from gavel.autopilot import goals
from gavel.autopilot.features import NAMES, features
from gavel.autopilot.pilot import Flight, Pilot
from gavel.cli.simulation import runner_of
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.ports import Changes
from gavel.simulator import setup
from gavel.simulator.outcome import Scenario
from gavel.store.sql import SqlStore
from gavel.types import SECONDS_PER_HOUR, Scope
from gavel.types.autopilot import AutopilotDecision, AutopilotMode, AutopilotSetting, CompositionScore
from scripts import drawn
from scripts.pictures import FLAGS, PICTURES

CANDIDATES = ("fifo", "max_min_fairness", "shortest_job_first", "least_attained_service")
EPOCH_S = 4 * SECONDS_PER_HOUR
JOBS = 90


def trace() -> str:
    """Return jobs of one accelerator and gangs of four, of minutes and of hours, with twice the arrivals later on."""
    random = np.random.default_rng(5)
    gaps_s = random.exponential(np.where(np.arange(JOBS) < JOBS // 2, 1500.0, 750.0))
    lengths_s = np.where(
        random.random(JOBS) < 0.3, random.uniform(4, 10, JOBS) * 3600, random.uniform(0.1, 1, JOBS) * 3600
    )
    gangs = np.where(random.random(JOBS) < 0.2, 4, 1)
    rows = zip(np.cumsum(gaps_s), lengths_s, gangs, strict=True)
    return "submit_time_s,duration_s,num_gpus\n" + "".join(
        f"{at:.0f},{length:.0f},{gang}\n" for at, length, gang in rows
    )


def flown(folder: Path) -> Pilot:
    """Return the run, at its end."""
    file = folder / "jobs.csv"
    file.write_text(trace())
    workload, cluster = setup.Workload(text=str(file)), setup.cluster_of("a100:8")
    survey = setup.survey(workload, None)
    scenario = Scenario(
        cluster=cluster,
        throughput=setup.rates(survey, None),
        settings=Settings(policy=CANDIDATES[0], round_duration_s=360.0, solve_on="event"),
        tiers=setup.tiers_of((), ()),
    )
    flight = Flight(goal=goals.read("mean_slowdown"), candidates=CANDIDATES, epoch_s=EPOCH_S)
    pilot = Pilot(workload.jobs(), scenario, runner_of(scenario), flight, time.process_time)
    for _ in pilot.rounds():
        pass
    return pilot


def stored(pilot: Pilot, now_s: float) -> Iterator[AutopilotDecision]:
    """Yield the run's decisions as a service stores them, as if the run ended now."""
    ended_s = pilot.decisions[-1].at_s + EPOCH_S / 3
    for number, (decision, question) in enumerate(zip(pilot.decisions, pilot.questions, strict=True)):
        epoch = pilot.epochs[number - 1] if number else None
        workers = len(question.scenario.cluster.workers)
        values = features(question.state.active, question.history, workers).tolist()
        yield AutopilotDecision(
            **{name: getattr(decision, name) for name in ("number", "seed", "goal", "incumbent", "chosen", "reason")},
            at_s=now_s - ended_s + decision.at_s,
            mode=AutopilotMode.AUTO,
            is_followed=decision.chosen != decision.incumbent,
            inputs_digest=decision.inputs_digest,
            scores=tuple(CompositionScore(**asdict(each)) for each in decision.scores),
            features=tuple(zip(NAMES[1:], values[1:], strict=True)),
            replayed=tuple(epoch.replayed.items()) if epoch else (),
            actual=epoch.real if epoch else None,
            cpu_s=pilot.decision_s[number],
            jobs=len(question.state.active.jobs),
        )


@contextmanager
def served(folder: Path, pilot: Pilot) -> Iterator[tuple[str, str]]:
    """Serve a dashboard over the stored decisions; yield its address and an operator's token."""
    store, token, now_s = SqlStore(f"sqlite:///{folder / 'gavel.db'}"), new_token(), time.time()
    store.add_token(digest(token), user="operator", scope=Scope.OPERATOR, now_s=now_s)
    for decision in stored(pilot, now_s):
        store.autopilot.add(decision, b"", b"", keep_questions=20)
    setting = AutopilotSetting(mode=AutopilotMode.AUTO, goal="mean_slowdown", candidates=CANDIDATES, epoch_s=EPOCH_S)
    store.commit(store.snapshot().version, Changes(policy=pilot.in_force, autopilot=setting))
    services = Services(
        store=store,
        settings=Settings(state_dir=folder),
        clock=SystemClock(),
        read_log=lambda job_id, offset, limit_bytes: (b"", offset),
        is_scheduler_alive=lambda: True,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(services), log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", token
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()
        store.close()


def draw(pictures: Path) -> Sequence[Path]:
    """Photograph the page; return the file."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium on the PATH: apt-get install chromium")
    with (
        tempfile.TemporaryDirectory() as name,
        served(Path(name), flown(Path(name))) as (url, token),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1360, "height": 1560}, color_scheme="light")
        page.goto(f"{url}/login#token={token}")
        page.wait_for_url(f"{url}/")
        page.goto(f"{url}/autopilot")
        page.wait_for_selector("#decisions-table tbody tr")
        page.wait_for_selector("body[data-ready]")
        page.wait_for_timeout(500)
        page.screenshot(path=pictures / "autopilot.png")
        browser.close()
    return [pictures / "autopilot.png"]


if __name__ == "__main__":
    sys.exit(drawn.main(draw, PICTURES))
