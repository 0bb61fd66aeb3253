"""What the command line understands and answers: names of jobs, addresses, options in refusals, what was meant."""

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from api.schemas import JobSubmit
from gavel.cli import app
from gavel.cli.connection import resolve
from gavel.cli.jobs import submit
from gavel.cli.option_names import option_of
from gavel.cli.program import python_of
from gavel.types import Scope
from tests.api.conftest import Service, service
from tests.client.test_worktree import git, write
from tests.command_line import QuickShell
from tests.git_server import git_server
from tests.nginx import a_certificate

__all__ = ["service"]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def jobs(service: Service) -> dict[str, str]:
    """The ids of jobs by name; two of them are called twin."""
    names = ("alpha", "beta", "twin", "twin")
    bodies = [{"argv": ["x"], "total_steps": 9, "tier": "gold", "name": name} for name in names]
    made = [service.operator().post("/v1/jobs", json=body).json() for body in bodies]
    return {f"{job['name']}-{i}" if job["name"] == "twin" else job["name"]: job["id"] for i, job in enumerate(made)}


@pytest.fixture
def gavel(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run commands in an empty folder: what they submit, and say, depends on what git knows of the folder."""
    monkeypatch.chdir(tmp_path)
    shell = QuickShell(tmp_path, {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token("operator", Scope.OPERATOR)})

    def run(*arguments: str, code: int = 0) -> str:
        done = shell.run(*arguments)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    yield run


@pytest.mark.parametrize(
    "command",
    [
        ("job", "show", "alpha", "--json"),
        ("job", "pause", "alpha", "--json"),
        ("job", "resume", "alpha", "--json"),
        ("job", "set", "alpha", "--weight", "2", "--json"),
        ("job", "explain", "alpha", "--json"),
        ("job", "events", "alpha", "--json"),
        ("placements", "--job", "alpha", "--json"),
        ("audit", "--job", "alpha", "--json"),
        ("throughputs", "--job", "alpha", "--json"),
        ("job", "submit", "--steps", "5", "--after", "alpha", "--json", "--", "true"),
    ],
    ids=" ".join,
)
def test_every_command_that_takes_a_job_takes_its_name(
    gavel: Run, jobs: dict[str, str], command: tuple[str, ...]
) -> None:
    answer: Any = json.loads(gavel(*command))
    if "id" in answer and "submit" not in command:
        assert answer["id"] == jobs["alpha"]
    if "submit" in command:
        assert answer["after"] == [jobs["alpha"]]


def test_the_beginning_of_an_id_is_enough_while_one_job_has_it(gavel: Run, jobs: dict[str, str]) -> None:
    together = jobs["beta"][:4]
    only = jobs["beta"]
    shortest = next(only[:n] for n in range(1, 17) if sum(each.startswith(only[:n]) for each in jobs.values()) == 1)
    assert json.loads(gavel("job", "show", shortest, "--json"))["name"] == "beta"
    refused = gavel("job", "cancel", together, code=2)
    assert "means several jobs; name one by its id" in refused and jobs["alpha"] in refused and "alpha" in refused


def test_a_name_that_two_jobs_have_is_answered_with_both(gavel: Run, jobs: dict[str, str]) -> None:
    refused = gavel("job", "cancel", "twin", code=2)
    assert jobs["twin-2"] in refused and jobs["twin-3"] in refused and "QUEUED" in refused
    assert "PAUSED" not in gavel("job", "show", jobs["twin-2"])


def test_a_name_that_no_job_has_is_answered_with_the_nearest(gavel: Run, jobs: dict[str, str]) -> None:
    assert "no job has the id or the name alpah; did you mean alpha?" in gavel("job", "show", "alpah", code=2)
    assert "`gavel job list` shows the jobs" in gavel("job", "show", "0Z_?", code=2)


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("job", "submit", "--steps", "0", "--", "true"), "--steps: "),
        (("job", "submit", "--steps", "5", "--scale-factor", "99", "--", "true"), "--scale-factor: "),
        (("job", "submit", "--steps", "5", "--env", "GAVEL_X=1", "--", "true"), "--env GAVEL_X: "),
        (("job", "submit", "--steps", "5", "--tier", "golden", "--", "true"), "did you mean gold?"),
        (("job", "submit", "--steps", "5", "--kind", "mlp-b265"), "did you mean mlp-b256?"),
        (("job", "submit", "--steps", "5", "--after", "alpah", "--", "true"), "did you mean alpha?"),
        (("job", "submit", "--steps", "5", "--memory", "lots", "--", "true"), "--memory lots: write a size"),
        (("policy", "set", "fiffo"), "did you mean fifo?"),
        (("tier", "set", "gold", "--guarantee", "2"), "--guarantee: "),
        (("job", "sbmit"), "submit"),
        (("cancel", "alpha"), "No such command 'cancel'. Did you mean 'gavel job cancel'?"),
        (("set", "gold"), "'gavel tier set'"),
        (("secret", "set", "SHORT"), "value: "),
        (("job", "submit", "--stepz", "5"), "--steps"),
        (("job", "submit"), "name a program, as in gavel job submit train.py, or a kind of `gavel catalogue`: --kind"),
        (("job", "submit", "--notify", "never", "--", "true"), "--notify: Input should be 'end'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.usefixtures("jobs")
def test_a_refusal_names_the_option_and_what_was_meant(gavel: Run, arguments: tuple[str, ...], output: str) -> None:
    refused = gavel(*arguments, code=2)
    assert output in refused and "body." not in refused and "total_steps" not in refused


def test_the_two_commands_that_users_type_most_have_a_short_form(gavel: Run) -> None:
    assert "(short)" in gavel("submit", "--steps", "3", "--name", "short", "--", "true")
    assert "the job has written no file" in gavel("download", "short")


def test_submit_has_an_option_for_every_field_of_the_api() -> None:
    group = get_command(app)
    command = group.commands["job"].commands["submit"]  # type: ignore[attr-defined]
    options = {name for each in command.params for name in each.opts}
    fields = set(JobSubmit.model_json_schema()["properties"]) - {"argv", "code"}  # --snapshot makes the code version
    assert {option_of(each) for each in fields} <= options, "an option that `gavel job submit --help` lacks"
    assert submit.__doc__ is not None


def test_the_help_of_submit_fits_a_terminal_of_80_columns() -> None:
    shown = CliRunner().invoke(app, ["job", "submit", "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).stdout
    assert "--steps" in shown and "…" not in shown, "nothing is cut"


def test_what_submit_states_arrives(gavel: Run) -> None:
    options = ("--no-preemptible", "--cpus", "1", "--memory", "1.5GiB", "--max-retries", "2", "--priority", "0")
    job = json.loads(gavel("job", "submit", "--steps", "5", *options, "--json", "--", "true"))
    assert (job["preemptible"], job["cpu_cores"], job["memory_bytes"], job["max_retries"]) == (False, 1, 3 << 29, 2)


@pytest.mark.usefixtures("jobs")
def test_where_a_job_can_run_is_stated_and_what_is_not_there_is_refused(gavel: Run) -> None:
    types = json.loads(gavel("cluster", "--json"))["capacity"]
    first = min(types)
    options = ("--accelerator-types", f"!{first}", "--memory", "1KiB")
    job = json.loads(gavel("job", "submit", "--steps", "5", *options, "--json", "--", "true"))
    assert (job["accelerator_types"], job["memory_bytes"]) == ([f"!{first}"], 1024)
    refused = gavel("job", "submit", "--steps", "5", "--node-label", "disk=tape", "--", "true", code=2)
    assert "--node-label: no accelerator type has room for this job: it needs nodes with disk=tape" in refused
    refused = gavel("job", "submit", "--steps", "5", "--accelerator-types", "nosuch", "--", "true", code=2)
    assert "--accelerator-types: there is no accelerator type nosuch; the cluster has" in refused


def test_a_job_runs_what_git_has_at_a_ref_and_what_is_not_there_is_refused(gavel: Run, tmp_path: Path) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    (tmp_path / "train.py").write_text("print(1)")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first"), ("tag", "v1")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, timeout=60)
    (tmp_path / "train.py").unlink()
    submit = ("job", "submit", "--steps", "5", "--git-ref")
    job = json.loads(gavel(*submit, "v1", "--json", "train.py"))
    assert (job["argv"], job["workdir"]) == (["python", "train.py"], str(tmp_path))
    assert len(job["code"]["commit"]) == 40 and not job["code"]["is_modified"]
    assert "--git-ref: git has no commit, tag or branch v2" in gavel(*submit, "v2", "train.py", code=2)
    assert "--git-ref: there is no file gone.py in" in gavel(*submit, "v1", "gone.py", code=2)
    assert "--git-ref: it goes with a program of your own" in gavel(*submit, "v1", "--no-snapshot", "train.py", code=2)


def test_the_interpreter_of_a_shell_without_an_environment_is_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 a link as version managers have: what it leads to counts, 2 without one or with one that fails: none."""
    monkeypatch.chdir(tmp_path)
    shim = tmp_path / "shims" / "python3"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    shim.chmod(0o755)
    environment = {"PATH": f"{shim.parent}:/nowhere"}
    assert python_of(None, tmp_path, environment, is_here=True) == sys.executable
    assert python_of(None, tmp_path, environment, is_here=False) is None
    shim.write_text("#!/bin/sh\nexit 1\n")
    for path in (environment, {"PATH": "/nowhere"}):
        assert python_of(None, tmp_path, path, is_here=True) is None
    environment["CONDA_PREFIX"] = str(Path(sys.executable).parents[1])
    assert python_of(None, tmp_path, environment, is_here=True) == str(Path(sys.executable).with_name("python"))


def test_a_job_runs_what_a_repository_elsewhere_has(gavel: Run, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "work")
    write(tmp_path / "work", sub__train_py="print(1)")
    git(tmp_path / "work", "add", ".")
    git(tmp_path / "work", "commit", "-qm", "first")
    git(tmp_path / "work", "tag", "v1")
    git(tmp_path, "clone", "-q", "--bare", "work", "served/repo.git")
    submit = ("job", "submit", "--steps", "5", "--git-url")
    with git_server(tmp_path / "served") as server:
        url = server.url("repo.git")
        job = json.loads(gavel(*submit, url, "--git-ref", "v1", "--json", "sub/train.py", "--lr", "1"))
        assert (job["argv"], job["workdir"]) == (["python", "sub/train.py", "--lr", "1"], "")
        shown = " ".join(gavel("job", "show", job["id"]).split())
        assert f"of commit {git(tmp_path / 'work', 'rev-parse', 'v1')[:12]}" in shown and "at v1" in shown
        gone = gavel(*submit, url, "gone.py", code=2)
        assert "PROGRAM: there is no file gone.py in" in gone
        assert "--git-url: git: " in gavel(*submit, server.url("gone.git"), "train.py", code=2)
        assert "--git-ref: " in gavel(*submit, url, "--git-ref", "v9", "train.py", code=2)
    assert "--git-url: write ssh://git@there/x.git" in gavel(*submit, "git@there:x.git", "train.py", code=2)
    assert f"use --workdir {tmp_path} --git-ref" in gavel(*submit, str(tmp_path), "train.py", code=2)
    assert "--workdir: the job runs in the top folder" in gavel(*submit, url, "--workdir", "/", "train.py", code=2)
    assert "name the file as it is in the repository" in gavel(*submit, url, "/tmp/train.py", code=2)
    assert "--git-url: it goes with a program of your own" in gavel(*submit, url, "--kind", "mlp-b256", code=2)


def test_an_address_without_a_scheme_is_understood(gavel: Run, service: Service, tmp_path: Path) -> None:
    assert resolve("localhost:8080", "t").url == "http://localhost:8080"
    assert resolve("https://gavel.example", "t").url == "https://gavel.example"
    assert "ok" in gavel("--url", service.url.removeprefix("http://"), "health")
    refused = gavel("--url", "ftp://localhost:8080", "health", code=2)
    assert "ftp://localhost:8080: the address of a service begins with http:// or https://" in refused


@pytest.mark.small("job submit --follow --steps 5 -- true")
@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("command", ["job logs -f alpha", "job submit --follow --steps 5 -- true"])
def test_ctrl_c_says_that_the_job_goes_on(service: Service, command: str) -> None:
    env = {**os.environ, "GAVEL_URL": service.url, "GAVEL_TOKEN": service.token("operator", Scope.OPERATOR)}
    process = subprocess.Popen(
        [sys.executable, "-u", "-X", "faulthandler", "-c", FOLLOWER, *command.split()],
        env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == "follows\n"
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, output
    job_id = output.split("gavel job cancel ")[1].split("`")[0]
    assert f"the job goes on; `gavel job logs -f {job_id}` continues, `gavel job cancel {job_id}` ends it" in output
    assert service.operator().get(f"/v1/jobs/{job_id}").json()["state"] == "QUEUED"


FOLLOWER = """
from gavel.cli import following, jobs, main

begin = following.print_log

def say(parts):
    print("follows", flush=True)
    begin(parts)

jobs.print_log = following.print_log = say
main()
"""


def test_a_certificate_that_is_not_trusted_is_named_and_not_taken_for_silence(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*a_certificate(tmp_path))
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        env = {"GAVEL_URL": f"https://127.0.0.1:{server.server_port}", "GAVEL_TOKEN": "any"}
        done = QuickShell(tmp_path, env).run("job", "list")
        server.shutdown()
    assert done.returncode == 2
    assert done.stderr.startswith(f"gavel: the certificate of {env['GAVEL_URL']} is not trusted here: self")
    assert "SSL_CERT_FILE" in done.stderr
