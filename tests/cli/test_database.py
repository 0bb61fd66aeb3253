"""Commands that read the database without a service: backup, check, and a stored round that is decided again."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gavel.cli import app
from gavel.policies.inline import InlineRunner
from gavel.ports import Changes
from gavel.store.sql import SqlStore
from tests.command_line import QuickShell
from tests.mechanism.world import World
from tests.postgresql import binaries, migrated_postgresql, postgresql
from tests.test_cli import bare

__all__ = ["bare", "migrated_postgresql", "postgresql"]


def test_the_database_is_backed_up_and_checked_without_a_service(bare: QuickShell, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gavel.db"
    assert "from revision none to" in bare.ok("db", "upgrade", "--database-url", url)
    assert "0 jobs, 0 rounds, 0 faults" in bare.ok("db", "check", "--database-url", url)
    assert "copy.db holds 0 jobs" in bare.ok("db", "backup", "copy.db", "--database-url", url)
    assert bare.run("db", "backup", "copy.db", "--database-url", url).returncode == 2
    assert bare.run("db", "check").returncode == 2


def test_a_stored_round_is_decided_again(bare: QuickShell, tmp_path: Path) -> None:
    """1. A round as the driver decides it. 2. The same allocation again. 3. One that was tampered with is found out."""
    world = World(runner=InlineRunner())
    ids = [world.submit(10_000) for _ in range(5)]
    world.run(lambda: world.store.round().solver_outcome == "solved")
    record = world.store.round()
    other = replace(record.allocation, time_fraction=record.allocation.time_fraction * 0.5)
    url = f"sqlite:///{tmp_path}/rounds.db"
    store = SqlStore(url)
    bare_record = replace(record, inputs=None)  # its leases cannot be compared, as of rounds of older releases
    for index, kept in enumerate(
        (record, replace(bare_record, allocation=other), replace(bare_record, solver_outcome="reused"))
    ):
        plan = replace(kept.plan, round_index=index + 1, parent_round_index=index)
        store.commit(index, Changes(round=replace(kept, plan=plan)))
    store.close()
    assert (
        f"{len(ids)} jobs" in (output := bare.ok("round", "verify", "1", "--database-url", url))
        and "the same" in output
    )
    changed = bare.run("round", "verify", "2", "--database-url", url)
    assert changed.returncode == 1 and "another allocation" in changed.stdout
    assert "no allocation of its own" in bare.ok("round", "verify", "3", "--database-url", url)
    refused = bare.run("round", "verify", "4", "--database-url", url)
    assert refused.returncode == 2 and "no round 4" in refused.stderr


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder, with these variables."""
    monkeypatch.chdir(tmp_path)
    return lambda *command, **env: CliRunner().invoke(app, command, env=env)


@pytest.mark.parametrize("command", [("check",), ("backup", "copy.db"), ("upgrade",)])
def test_in_a_folder_without_a_service_the_line_says_how_to_name_one(
    run: Run, command: tuple[str, ...], tmp_path: Path
) -> None:
    refused = run("db", *command)
    assert refused.exit_code == 2 and refused.stderr.startswith("gavel: there is no "), refused.stderr
    assert "GAVEL_STATE_DIR=/its/state/folder, or --database-url" in refused.stderr and not list(tmp_path.iterdir())


def test_the_commands_work_as_printed_from_any_folder(run: Run, tmp_path: Path) -> None:
    """1. The variable of the documentation names the state folder. 2. A file of settings does. 3. A relative path."""
    state = tmp_path / "far" / "state"
    state.mkdir(parents=True)
    SqlStore(f"sqlite:///{state / 'gavel.db'}").close()
    there = {"GAVEL_STATE_DIR": str(state)}
    assert "0 faults" in run("db", "check", **there).stdout and "already" in run("db", "upgrade", **there).stdout
    assert "0 faults" in run("db", "backup", "one.db", **there).stdout and (tmp_path / "one.db").exists()
    no_folder = run("db", "backup", "none/two.db", **there)
    assert no_folder.exit_code == 2 and f"there is no folder {tmp_path / 'none'}" in no_folder.stderr
    (tmp_path / "gavel.toml").write_text(f'state_dir = "{state}"\n')
    assert "0 faults" in run("db", "check").stdout
    assert "0 faults" in run("db", "check", "--database-url", "sqlite:///far/state/gavel.db").stdout


@pytest.mark.parametrize("command", ["db upgrade", "db check", "db backup f", "round verify 1"])
def test_a_driver_that_is_missing_is_one_line_with_the_fix(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    refused = run(*command.split(), "--database-url", "postgresql://gavel@db.example/gavel")
    line = "gavel: database_url: there is no driver for postgresql here; try pip install 'gavel[postgres]'\n"
    assert (refused.exit_code, refused.stderr) == (2, line)


@pytest.mark.full
def test_for_postgresql_the_command_to_back_it_up_is_printed_and_works(
    run: Run, migrated_postgresql: str, tmp_path: Path
) -> None:
    """With a driver in the URL, which pg_dump does not know."""
    pg_dump = binaries() / "pg_dump"
    assert "0 faults" in run("db", "check", "--database-url", migrated_postgresql).stdout
    assert "already" in run("db", "upgrade", "--database-url", migrated_postgresql).stdout
    refused = run("db", "backup", "a copy.dump", "--database-url", migrated_postgresql)
    printed = shlex.split(refused.stderr.partition("PostgreSQL has its own: ")[2])
    assert refused.exit_code == 2 and printed[0] == "pg_dump"
    subprocess.run([pg_dump, *printed[1:]], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "a copy.dump").stat().st_size > 1000


@pytest.mark.full
@pytest.mark.parametrize("command", ["db upgrade", "job list"])
def test_a_state_folder_of_another_user_is_one_line(command: str, tmp_path: Path) -> None:
    """As for everybody but the service's user and root; root without its capabilities is like everybody."""
    if shutil.which("setpriv") is None or os.geteuid() != 0:
        pytest.skip("needs root, and setpriv (Debian: apt install util-linux)")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.chown(state, 65534, 65534)
    argv = [sys.executable, "-m", "gavel.cli", *command.split()]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), "GAVEL_STATE_DIR": str(state)}
    dropped = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", *argv]
    ran = subprocess.run(dropped, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and ran.stderr.count("\n") == 1 and "is another user's" in ran.stderr, ran.stderr
