"""The command line against the real service; as a process where the process is the point."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.cli import show
from gavel.cli.program import argv_of
from gavel.types import JobState, Scope
from tests.api.conftest import NOW_S, Service, service
from tests.api.rounds import a_record
from tests.command_line import QuickShell, Shell

__all__ = ["service"]

MODULES_MAX = 500
HEAVY = ("cvxpy", "sqlalchemy", "fastapi", "numpy", "pydantic")


@pytest.fixture
def bare(tmp_path: Path) -> QuickShell:
    """A shell that knows of no service."""
    return QuickShell(tmp_path)


@pytest.fixture
def shell(service: Service, tmp_path: Path) -> QuickShell:
    """A shell whose environment names the service and its operator."""
    return QuickShell(tmp_path, {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token("operator", Scope.OPERATOR)})


@pytest.fixture
def processes(tmp_path: Path) -> Shell:
    """A shell that knows of no service, whose commands are processes."""
    return Shell(tmp_path)


# --- without a service


def test_help_imports_nothing_heavy_and_few_modules(processes: Shell) -> None:
    """Help comes at once: what it costs is what it imports, and that is counted, since time depends on the machine."""
    assert "submit" in processes.ok("--help")
    probe = [sys.executable, "-X", "importtime", "-m", "gavel.cli", "--help"]
    ran = subprocess.run(probe, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert "gavel.cli.jobs" in imported and not imported & set(HEAVY)
    assert len(imported) < MODULES_MAX


def test_version_is_that_of_the_package(bare: Shell, processes: Shell) -> None:
    version = processes.ok("--version")
    assert version == bare.ok("version") and version.startswith("gavel 0.")


def test_without_a_service_it_says_how_to_start_one(processes: Shell) -> None:
    done = processes.run("job", "list")
    assert done.returncode == 2 and done.stdout == ""
    assert "gavel serve" in done.stderr and "Traceback" not in done.stderr


def test_a_service_that_is_gone_is_named_with_where_the_address_came_from(bare: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    _written(bare.folder / ".gavel", f"http://127.0.0.1:{port}", "t")
    done = bare.run("job", "list")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert str(port) in done.stderr and "service.json" in done.stderr and "gavel serve" in done.stderr


def test_a_setting_out_of_bounds_is_named(bare: Shell) -> None:
    done = bare.run("serve", "--port", "99999")
    assert done.returncode == 2 and "setting port" in done.stderr and "65535" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("job", "submit", "--steps", "5", "no-such.py"), "there is no file"),
        (("job", "submit", "--steps", "5", "--env", "SEED", "--", "true"), "NAME=VALUE"),
        (("job", "submit", "--steps", "5", "--throughput", "fast=quick", "--", "true"), "TYPE=STEPS_PER_S"),
        (("job", "submit", "train.py", "--steps", "5"), "gavel job submit --steps N train.py"),
        (("job", "submit", "--steps", "5", "--workdir", "gone", "true"), "--workdir gone"),
        (("job", "submit", "--steps", "5", "--env-file", "gone", "true"), "--env-file gone"),
        (("job", "submit", "--steps", "5", "--data", "/a/set", "--", "true"), "--data /a/set: write NAME=PATH_OR_URL"),
        (("user", "set", "ann"), "--tier"),
    ],
)
def test_wrong_arguments_are_answered_with_what_to_write(bare: Shell, arguments: tuple[str, ...], hint: str) -> None:
    bare.env = {"GAVEL_URL": "http://127.0.0.1:9", "GAVEL_TOKEN": "t"}
    done = bare.run(*arguments)
    assert done.returncode == 2 and hint in done.stderr and "Traceback" not in done.stderr


def test_a_python_file_becomes_python_and_its_absolute_path(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    assert argv_of([str(script), "--rate", "0.1"]) == ["python", str(script), "--rate", "0.1"]
    assert argv_of(["./train", "a.py"]) == ["./train", "a.py"]
    assert argv_of([]) is None


def test_text_of_jobs_cannot_steer_the_terminal() -> None:
    assert show.harmless("a\x1b[2Jb\x9b\r\n\tc") == "a\\x1b[2Jb\\x9b\r\n\tc"


# --- which service, as whom


def _written(state_dir: Path, url: str, token: str) -> None:
    """What `gavel serve` leaves in its state folder."""
    state_dir.mkdir()
    (state_dir / "service.json").write_text(json.dumps({"url": url, "pid": 1}))
    (state_dir / "operator.token").write_text(token + "\n")


def test_the_state_folder_of_a_local_service_is_enough(service: Service, bare: Shell) -> None:
    _written(bare.folder / "elsewhere", service.url, service.token("operator", Scope.OPERATOR))
    (bare.folder / "gavel.toml").write_text('state_dir = "elsewhere"\n')
    assert "gold" in bare.ok("tier", "list")


def test_the_local_operator_s_token_is_not_sent_to_another_address(service: Service, bare: Shell) -> None:
    _written(bare.folder / ".gavel", "http://127.0.0.1:9", service.token("operator", Scope.OPERATOR))
    done = bare.run("--url", service.url, "tier", "list")
    assert done.returncode == 2 and "--token" in done.stderr


def test_a_refused_token_is_named_by_where_it_came_from(service: Service, bare: Shell) -> None:
    bare.env = {"GAVEL_URL": service.url}
    _written(bare.folder / ".gavel", service.url, "stale")
    done = bare.run("job", "list")
    assert done.returncode == 2 and "operator.token" in done.stderr
    done = bare.run("--token", "wrong", "job", "list")
    assert done.returncode == 2 and "--token or GAVEL_TOKEN" in done.stderr and "wrong" not in done.stderr


def test_another_program_at_the_address_is_recognised(service: Service, bare: Shell) -> None:
    bare.env = {"GAVEL_URL": f"{service.url}/docs?", "GAVEL_TOKEN": "t"}
    done = bare.run("tier", "list")
    assert done.returncode == 2 and "right address" in done.stderr


# --- jobs


def test_a_submit_carries_every_option(service: Service, shell: Shell) -> None:
    (shell.folder / "train.py").touch()
    options = "--steps 5000 --name first --tier gold --scale-factor 2 --weight 2.5 --env SEED=7=8 --label team=vision"
    out = shell.ok(
        "job", "submit", *options.split(), "--throughput", "fast=12.5", "--json", "train.py", "--rate", "0.1"
    )
    job = service.store.job(json.loads(out)["id"])
    assert job.spec.argv == ("python", "train.py", "--rate", "0.1") and job.spec.workdir == str(shell.folder)
    assert (job.spec.name, job.spec.tier, job.spec.scale_factor, job.spec.weight) == ("first", "gold", 2, 2.5)
    assert (dict(job.spec.env), dict(job.spec.labels)) == ({"SEED": "7=8"}, {"team": "vision"})
    assert dict(job.spec.throughput_steps_per_s) == {"fast": 12.5} and job.spec.total_steps == 5000


def test_the_callers_environment_goes_with_a_program(service: Service, shell: Shell) -> None:
    """1 the folder, the interpreter of the active environment and the variables of a file, 2 what is named wins."""
    (shell.folder / "train.py").touch()
    (shell.folder / "mine.env").write_text("# of the project\nexport SEED=3\nPROXY='a b'\n")
    own = shell.folder / "own" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.symlink_to(sys.executable)
    shell.env["VIRTUAL_ENV"] = str(shell.folder / "own")
    submit = ("job", "submit", "--steps", "5", "--json", "--env-file", "mine.env")
    spec = service.store.job(json.loads(shell.ok(*submit, "--env", "SEED=4", "train.py", "--steps", "9"))["id"]).spec
    assert (spec.argv, spec.workdir) == (("python", "train.py", "--steps", "9"), str(shell.folder))
    assert (spec.python, dict(spec.env)) == (str(own), {"SEED": "4", "PROXY": "a b"})
    named = ("--python", "/usr/bin/python3", "--workdir", "own")
    spec = service.store.job(json.loads(shell.ok(*submit, *named, "train.py"))["id"]).spec
    assert (spec.argv[1], spec.workdir) == (str(shell.folder / "train.py"), str(shell.folder / "own"))
    assert spec.python == "/usr/bin/python3"


def test_inputs_are_named_from_here_and_one_that_is_not_there_is_refused(service: Service, shell: Shell) -> None:
    (shell.folder / "sets").mkdir()
    submit = ("job", "submit", "--steps", "5", "--json")
    named = ("--data", "train=sets", "--data", "words=https://there.example/words?a=b")
    spec = service.store.job(json.loads(shell.ok(*submit, *named, "--", "true"))["id"]).spec
    assert dict(spec.data) == {"train": str(shell.folder / "sets"), "words": "https://there.example/words?a=b"}
    done = shell.run(*submit, "--data", "train=gone", "--", "true")
    assert done.returncode == 2 and f"--data train: there is no {shell.folder / 'gone'}" in done.stderr


def test_the_interpreter_of_a_folder_is_taken_where_none_is_active(shell: Shell) -> None:
    (shell.folder / "train.py").touch()
    own = shell.folder / ".venv" / "bin" / "python"
    of_shell = json.loads(shell.ok("job", "submit", "--steps", "5", "--json", "train.py"))["python"]
    assert os.access(of_shell, os.X_OK) and not of_shell.startswith(str(shell.folder))
    own.parent.mkdir(parents=True)
    own.symlink_to(sys.executable)
    assert json.loads(shell.ok("job", "submit", "--steps", "5", "--json", "train.py"))["python"] == str(own)


def test_a_submit_the_service_refuses_prints_its_reason(shell: Shell) -> None:
    done = shell.run("job", "submit", "--steps", "5", "--tier", "platinum", "--", "true")
    assert done.returncode == 2 and "platinum is not one of your tiers" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_job_without_a_checkpoint_is_not_submitted_again_from_one(shell: Shell) -> None:
    job_id = json.loads(shell.ok("job", "submit", "--steps", "5", "--json", "--", "true"))["id"]
    done = shell.run("job", "resubmit", job_id, "--from-checkpoint")
    assert done.returncode == 2 and f"--from-checkpoint: job {job_id} has no accepted checkpoint" in done.stderr


@pytest.mark.small("COMPLETED-0")
@pytest.mark.parametrize(("state", "code"), [(JobState.COMPLETED, 0), (JobState.FAILED, 1), (JobState.CANCELLED, 1)])
def test_a_waiting_submit_ends_as_the_job_ends(service: Service, shell: Shell, state: JobState, code: int) -> None:
    with shell.start(
        "job", "submit", "--steps", "5", "--follow", "--json", "--name", "awaited", "--", "true"
    ) as process:
        assert process.stderr is not None
        job_id = process.stderr.readline().split()[-1]
        (service.logs / job_id).write_text("step 5\n")
        job = service.store.job(job_id)
        service.change(replace(job, state=state, finished_at_s=NOW_S + 9, steps_done=5, exit_code=0))
        out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert out.startswith("step 5\n") and json.loads(out.removeprefix("step 5\n"))["state"] == state


def test_jobs_are_listed_shown_and_cancelled(service: Service, shell: Shell) -> None:
    first, second = (
        json.loads(
            shell.ok("job", "submit", "--steps", "5", "--name", name, "--tier", "silver", "--json", "--", "true")
        )["id"]
        for name in ("one", "two")
    )
    done = shell.run("job", "list", "--tier", "silver", "--limit", "1")
    assert second in done.stdout and first not in done.stdout and "--limit" in done.stderr
    assert json.loads(shell.ok("job", "list", "--tier", "silver", "--limit", "2", "--json"))[1]["id"] == first
    assert "0/5" in shell.ok("job", "show", first)
    cancelled = shell.ok("job", "cancel", first, second)
    assert cancelled.count("CANCELLING") == 2
    assert "job.submitted" in shell.ok("job", "events", first)
    assert json.loads(shell.ok("job", "events", first, "--json"))[0]["job_id"] == first


def test_logs_are_printed_as_they_are_and_followed_to_the_end(service: Service, shell: Shell) -> None:
    job_id = json.loads(shell.ok("job", "submit", "--steps", "5", "--json", "--", "true"))["id"]
    (service.logs / job_id).write_bytes(b"\x1b[31mred\x1b[0m\n")
    assert shell.ok("job", "logs", job_id) == "\x1b[31mred\x1b[0m\n"
    with shell.start("job", "logs", "-f", job_id) as process:
        assert process.stdout is not None and "red" in process.stdout.readline()
        (service.logs / job_id).write_bytes(b"\x1b[31mred\x1b[0m\nthe end\n")
        service.change(replace(service.store.job(job_id), state=JobState.COMPLETED, finished_at_s=NOW_S + 1))
        assert process.communicate(timeout=60)[0] == "the end\n"


# --- operators


def test_a_tier_keeps_what_was_not_named(shell: Shell) -> None:
    shell.ok("tier", "set", "bronze", "--weight", "0.5", "--guarantee", "0.1")
    shell.ok("tier", "set", "bronze", "--objective", "fifo")
    bronze = next(tier for tier in json.loads(shell.ok("tier", "list", "--json")) if tier["name"] == "bronze")
    assert (bronze["weight"], bronze["objective"], bronze["guarantee"]) == (0.5, "fifo", 0.1)
    done = shell.run("tier", "set", "bronze", "--objective", "makespan")
    assert done.returncode == 2 and "objective" in done.stderr


def test_a_user_is_made_and_its_token_works(shell: Shell) -> None:
    assert "silver, gold" in shell.ok("user", "set", "zoe", "--tier", "silver", "--tier", "gold")
    assert "zoe" in shell.ok("user", "list")
    token = shell.ok("token", "create", "zoe").strip()
    assert "\n" not in token
    shell.env["GAVEL_TOKEN"] = token
    assert json.loads(shell.ok("job", "submit", "--steps", "1", "--json", "--", "true"))["tier"] == "silver"
    assert shell.run("tier", "set", "gold", "--weight", "3").returncode == 2


# --- what the scheduler does


@pytest.fixture
def seen(service: Service, shell: Shell) -> Iterator[str]:
    """A job that the newest round allocates to."""
    job_id = json.loads(shell.ok("job", "submit", "--steps", "5", "--name", "seen", "--json", "--", "true"))["id"]
    newest = service.store.rounds(limit=1)
    index = newest[0].round_index + 1 if newest else 1
    service.change(round=a_record([], {job_id: (0.75, 0.25)}, round_index=index))
    yield job_id


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("allocations", ["seen", "fast ×2", "0.75", "0.25"]),
        ("round list", ["hierarchical"]),
        ("cluster", ["fast-0", "slow-3", "node-0"]),
        ("throughputs", ["KIND"]),
        ("policy list", ["max_min_fairness", "* ", "fifo"]),
    ],
)
def test_every_view_comes_for_people_and_as_json(shell: Shell, seen: str, command: str, shown: list[str]) -> None:
    text = shell.ok(*command.split())
    assert [part for part in shown if part not in text] == []
    assert json.loads(shell.ok(*command.split(), "--json"))


# --- sweeps, pauses, limits


def test_a_sweep_from_the_shell(shell: Shell) -> None:
    ran = shell.run(
        "job", "submit", "--steps", "5", "--array", "RATE=1,2", "--json", "--", "./train", "--rate", "{RATE}"
    )
    jobs = json.loads(ran.stdout)
    assert [job["argv"][-1] for job in jobs] == ["1", "2"] and jobs[0]["array_index"] == 0
    array = jobs[0]["array_id"]
    assert len(json.loads(shell.ok("job", "list", "--array", array, "--json"))) == 2
    assert "PAUSED" in shell.ok("job", "pause", jobs[0]["id"])
    assert "QUEUED" in shell.ok("job", "resume", jobs[0]["id"])
    edited = json.loads(shell.ok("job", "set", jobs[0]["id"], "--priority", "3", "--label", "a=b", "--json"))
    assert (edited["priority"], edited["labels"]) == (3, {"a": "b"})
    assert shell.ok("job", "cancel", "--array", array, "--keep", jobs[0]["id"]).split() == [jobs[1]["id"]]
    assert "pause.requested" in shell.ok("audit", "--job", jobs[0]["id"])
    assert shell.run("job", "set", jobs[0]["id"]).returncode == 2 and shell.run("job", "cancel").returncode == 2


def test_a_job_after_another_shows_what_it_waits_for(shell: Shell) -> None:
    first = json.loads(shell.ok("job", "submit", "--steps", "5", "--json", "--", "./train"))["id"]
    shown = shell.ok("job", "submit", "--steps", "5", "--after", first, "--", "./train")
    assert "Of the jobs that come first, 1 of 1 have not completed" in shown and first in shown


def test_the_submit_says_whether_the_deadline_will_be_met(shell: Shell) -> None:
    ran = shell.run("job", "submit", "--steps", "500", "--deadline", "100", "--throughput", "fast=10", "--", "./train")
    assert ran.returncode == 0 and "deadline: met (" in ran.stderr and "50 s alone on fast" in ran.stderr


def test_a_tier_keeps_the_limits_that_a_change_does_not_name(shell: Shell) -> None:
    shell.ok("tier", "set", "above")
    shell.ok("tier", "set", "capped", "--cap", "0.5", "--hours", "10", "--max-jobs", "7", "--parent", "above")
    assert json.loads(shell.ok("tier", "set", "above", "--within-user", "equal", "--json"))[0]["within_user"] == "equal"
    changed = json.loads(shell.ok("tier", "set", "capped", "--weight", "2", "--json"))[0]
    assert (changed["weight"], changed["cap"], changed["accelerator_hours_per_month"]) == (2.0, 0.5, 10.0)
    assert changed["parent"] == "above"
    assert json.loads(shell.ok("tier", "set", "capped", "--parent", "", "--json"))[0]["parent"] is None
    free = json.loads(shell.ok("tier", "set", "capped", "--unlimited", "--max-jobs", "3", "--json"))[0]
    assert (free["cap"], free["accelerator_hours_per_month"], free["max_jobs"]) == (0.5, None, 3)
    assert "accelerator hours" in shell.ok("tier", "usage", "capped")
    assert "tier.changed" in shell.ok("audit", "--subject", "tier/capped")


def test_tiers_are_listed_as_a_tree(shell: Shell) -> None:
    shell.ok("tier", "set", "research")
    for team in ("vision", "language"):
        shell.ok("tier", "set", team, "--parent", "research")
    names = [line.split("  1 ")[0].rstrip() for line in shell.ok("tier", "list").splitlines()]
    place = names.index("research")
    assert names[place : place + 3] == ["research", "  language", "  vision"]
    assert shell.run("tier", "set", "research", "--parent", "vision").returncode == 2
