"""The SQL store on a real PostgreSQL: conformance, and what several processes need of it."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import create_engine

from gavel.errors import StaleVersion, StoreUnavailable
from gavel.ports import Changes, JobFilter
from gavel.store.conformance import API_CHECKS, SIMULATION_CHECKS
from gavel.store.schema import Base
from gavel.store.sql import SqlStore
from tests.builders import a_spec
from tests.postgresql import Server, emptied
from tests.store.test_sql_store import SUBMIT_UNTIL_KILLED
from tests.store.test_stateful import IS_FULL, PROFILE, ApiMachine

OpenStore = Callable[..., SqlStore]
CHECKS = (*SIMULATION_CHECKS, *API_CHECKS)


@pytest.fixture
def url(migrated_postgresql: str) -> str:
    """A database with tables and nothing in them."""
    return emptied(migrated_postgresql)


@pytest.fixture
def open_store(url: str) -> Iterator[OpenStore]:
    opened: list[SqlStore] = []

    def open_it(**given: object) -> SqlStore:
        opened.append(SqlStore(url, **given))  # type: ignore[arg-type]
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


def submit(store: SqlStore, key: str | None = None) -> str:
    return store.submit(a_spec(), key=key, body_hash="h", now_s=1.0).job.id


@pytest.mark.parametrize("check", CHECKS if IS_FULL else CHECKS[::4], ids=lambda check: check.__name__)
def test_the_sql_store_conforms_on_postgresql(check: Callable[[SqlStore], None], open_store: OpenStore) -> None:
    check(open_store())


def test_the_migrations_make_the_tables_of_the_schema_on_postgresql(url: str) -> None:
    engine = create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_the_sql_store_on_postgresql_agrees_with_a_dictionary(url: str) -> None:
    def one_database() -> Callable[[], SqlStore]:
        emptied(url)
        return lambda: SqlStore(url)

    few = PROFILE if IS_FULL else settings(PROFILE, max_examples=2)
    run_state_machine_as_test(lambda: ApiMachine(one_database()), settings=few)  # type: ignore[arg-type]


@pytest.mark.full
def test_two_processes_that_open_an_empty_database_at_once_both_find_its_tables(postgresql: Server) -> None:
    url = postgresql.new_database()
    program = "import sys; from gavel.store.sql import SqlStore; SqlStore(sys.argv[1]).close()"
    running = [subprocess.Popen([sys.executable, "-c", program, url], stderr=subprocess.PIPE) for _ in range(2)]
    errors = [each.communicate(timeout=60)[1] for each in running]
    assert [each.returncode for each in running] == [0, 0], errors


def test_one_key_from_two_stores_makes_one_job(open_store: OpenStore) -> None:
    stores = [open_store(), open_store()]
    barrier = threading.Barrier(8)

    def same_submit(index: int) -> tuple[str, bool]:
        barrier.wait()
        answer = stores[index % 2].submit(a_spec(), key="k", body_hash="h", now_s=1.0)
        return answer.job.id, answer.created

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(same_submit, range(8)))
    assert len({job_id for job_id, _ in answers}) == 1
    assert sorted(created for _, created in answers) == [False] * 7 + [True]
    assert len(stores[0].jobs(JobFilter()).jobs) == 1


def test_of_two_schedulers_one_commit_wins(open_store: OpenStore) -> None:
    stores = [open_store(), open_store()]
    job = stores[0].job(submit(stores[0]))
    barrier = threading.Barrier(8)

    def commit(generation: int) -> bool:
        barrier.wait()
        try:
            return stores[generation % 2].commit(0, Changes(jobs=(replace(job, generation=generation),))) == 1
        except StaleVersion:
            return False

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(commit, range(1, 9)))
    assert won.count(True) == 1 and stores[0].job(job.id).generation == won.index(True) + 1


def test_a_submit_in_another_process_wakes_the_scheduler(url: str, open_store: OpenStore) -> None:
    woken = threading.Event()
    scheduler = open_store(on_change=woken.set)
    assert woken.wait(30)  # the listener is there
    woken.clear()
    program = (
        "import sys; from gavel.store.sql import SqlStore; from gavel.types import JobSpec\n"
        "store = SqlStore(sys.argv[1])\n"
        "spec = JobSpec(kind='mlp', user='ann', tier='default', argv=('true',), total_steps=1)\n"
        "print(store.submit(spec, key=None, body_hash='h', now_s=1.0).job.id)\n"
        "store.close()\n"
    )
    submitted = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=True)
    assert woken.wait(30)
    assert list(scheduler.snapshot().jobs) == [submitted.stdout.strip()]


@pytest.mark.full
@pytest.mark.parametrize("enough", [30])
def test_kill_9_loses_and_doubles_no_acknowledged_submit(enough: int, url: str, open_store: OpenStore) -> None:
    argv = [sys.executable, "-c", SUBMIT_UNTIL_KILLED, url]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(enough)]
        process.kill()
        acknowledged += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    whole = [line.strip() for line in acknowledged if line.endswith("\n")]
    stored = open_store().snapshot().jobs
    assert len(whole) >= enough and len(set(whole)) == len(whole) and set(whole) <= set(stored)


def test_a_locked_database_acknowledges_nothing_and_then_goes_on(url: str, open_store: OpenStore) -> None:
    store = open_store(busy_timeout_s=0.05)
    engine = create_engine(url)
    with engine.begin() as other:
        other.exec_driver_sql("LOCK TABLE counters IN EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable, match="lock"):
            submit(store, key="k")
        assert store.jobs(JobFilter()).jobs == ()
    engine.dispose()
    submit(store, key="k")
    assert len(store.jobs(JobFilter()).jobs) == 1


def test_a_server_that_cuts_connections_is_found_again(url: str, open_store: OpenStore, postgresql: Server) -> None:
    store = open_store()
    first = submit(store)
    postgresql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test_%'")
    second = submit(store)
    assert sorted(store.snapshot().jobs) == sorted([first, second])
