"""Secrets: encrypted where they are kept, variables of the ranks, and masked in all that these print."""

import json
import os
import re
import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends.harness import exit_of, resource
from gavel.backends.launch import Preparation
from gavel.backends.output import MASK, Mask
from gavel.backends.secret_store import SecretStore
from gavel.errors import BackendUnavailable, InvalidRequest, NotFound
from gavel.types import GangOutcome
from tests.backends.clusters import LocalHarness, directory, eventually, script

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
VALUE = "s3cret-value-of-ann"
SECRETS = st.lists(st.text("ab", min_size=8, max_size=12), min_size=1, max_size=3, unique=True)


@settings(max_examples=2000 if IS_FULL else 60)
@given(secrets=SECRETS, parts=st.lists(st.text("abc\n", max_size=9), max_size=12), data=st.data())
def test_output_is_masked_the_same_however_it_comes(secrets: list[str], parts: list[str], data: st.DataObject) -> None:
    """1 as if the whole output had been there at once, 2 so no secret is in it."""
    for _ in range(data.draw(st.integers(0, 2))):
        parts.insert(data.draw(st.integers(0, len(parts))), data.draw(st.sampled_from(secrets)))
    mask = Mask(secrets)
    covered = b"".join([*(mask.cover(part.encode()) for part in parts), mask.cover(b"", is_last=True)])
    pattern = "|".join(map(re.escape, sorted(secrets, key=len, reverse=True)))
    assert covered == re.sub(pattern, MASK.decode(), "".join(parts)).encode()
    assert not [secret for secret in secrets if secret.encode() in covered]


def test_long_lines_of_a_secret_are_masked_one_by_one() -> None:
    mask = Mask(["-----BEGIN KEY-----\nabcdefghijkl\nxy\n"])
    assert mask.cover(b"> abcdefghijkl\n> xy\n", is_last=True) == b"> ***\n> xy\n"


def test_a_stored_secret_is_encrypted_and_bound_to_its_name(tmp_path: Path) -> None:
    """1 no file has the value, all are private, 2 a file that is moved to another name or user is refused."""
    store = SecretStore(tmp_path)
    store.put("ann", "TOKEN", VALUE)
    assert store.values("ann", ["TOKEN"]) == {"TOKEN": VALUE}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"TOKEN", "secrets.key"}
    assert all(VALUE.encode() not in path.read_bytes() for path in files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    (tmp_path / "secrets" / "bob").mkdir()
    (tmp_path / "secrets" / "ann" / "TOKEN").rename(tmp_path / "secrets" / "bob" / "TOKEN")
    with pytest.raises(BackendUnavailable, match="TOKEN cannot be read"):
        store.values("bob", ["TOKEN"])
    with pytest.raises(NotFound, match="gavel secret set TOKEN"):
        store.values("ann", ["TOKEN"])


def test_secrets_are_listed_replaced_and_deleted(tmp_path: Path) -> None:
    store = SecretStore(tmp_path)
    for name in ("TOKEN", "ANOTHER", "TOKEN"):
        store.put("ann", name, f"{VALUE}-{name}")
    assert [each.name for each in store.names("ann")] == ["ANOTHER", "TOKEN"] and store.names("bob") == ()
    store.delete("ann", "TOKEN")
    assert store.missing("ann", ["ANOTHER", "TOKEN"]) == "TOKEN"
    with pytest.raises(NotFound):
        store.delete("ann", "TOKEN")
    with pytest.raises(InvalidRequest, match="RANK"):
        store.put("ann", "RANK", VALUE)


def test_a_key_that_is_gone_or_another_is_told(tmp_path: Path) -> None:
    """1 another key, 2 no key, 3 one that is none: none of them makes a new key in silence."""
    store = SecretStore(tmp_path, tmp_path / "elsewhere.key")
    store.put("ann", "TOKEN", VALUE)
    (tmp_path / "elsewhere.key").write_bytes(Fernet.generate_key())
    with pytest.raises(BackendUnavailable, match="cannot be read with the key"):
        store.values("ann", ["TOKEN"])
    (tmp_path / "elsewhere.key").unlink()
    with pytest.raises(BackendUnavailable, match="is gone; put it back"):
        store.put("ann", "OTHER", VALUE)
    (tmp_path / "elsewhere.key").write_text("no key")
    with pytest.raises(BackendUnavailable, match="has no key for secrets"):
        store.put("ann", "OTHER", VALUE)


@pytest.fixture
def store(harness: LocalHarness) -> SecretStore:
    """The secrets of the harness's backend; ann has TOKEN."""
    store = SecretStore(harness.folder)
    store.put("ann", "TOKEN", VALUE)
    harness.crash()
    harness.backend = harness.open(preparation=Preparation(secrets_of=store.values))
    return store


def test_a_job_has_its_secrets_and_what_it_prints_of_them_is_masked(harness: LocalHarness, store: SecretStore) -> None:
    """1 a secret is a variable, 2 it is masked though it comes in two parts, 3 only the private launch.json
    of the gang has it."""
    half = 'printf "it is ${TOKEN%-of-ann}"; while [ ! -e "$GAVEL_GANG_DIR/go" ]; do sleep 0.02; done; echo "-of-ann."'
    harness.backend.execute(script(harness, half, secrets=("TOKEN",)))
    log = harness.folder / "logs" / "j1.log"
    eventually(lambda: harness.backend.observe() is not None and log.exists() and log.read_bytes() == b"it is ")
    holders = [path for path in harness.folder.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
    assert holders == [directory(harness, "j1") / "launch.json"]
    assert stat.S_IMODE(holders[0].stat().st_mode) == 0o600
    (directory(harness, "j1") / "job" / "go").touch()
    assert exit_of(harness, "j1").log_tail == "it is ***."
    assert log.read_bytes() == b"it is ***.\n"


def test_a_secret_in_the_name_of_a_program_that_is_not_there_is_masked(
    harness: LocalHarness, store: SecretStore
) -> None:
    store.put("ann", "PATH", f"/{VALUE}/bin")
    harness.backend.execute(script(harness, "", argv=("no-such-program",), secrets=("PATH",)))
    end = exit_of(harness, "j1")
    assert end.outcome is GangOutcome.NOT_STARTED and VALUE not in end.message and "***" in end.message


def test_a_changed_secret_counts_from_the_next_gang_and_a_deleted_one_ends_the_job(
    harness: LocalHarness, store: SecretStore
) -> None:
    for generation, value in ((1, "the-first-value"), (2, "the-second-value")):
        store.put("ann", "TOKEN", value)
        over = {"generation": generation, "resource": "gavel/any", "secrets": ("TOKEN",)}
        tell = f'echo -n "$TOKEN" | wc -c; test "$TOKEN" = {value} && echo same'
        harness.backend.execute([resource(harness, "any"), script(harness, tell, **over)[1]])
        assert exit_of(harness, "j1", generation).log_tail.splitlines() == [str(len(value)), "same"]
    store.delete("ann", "TOKEN")
    last = script(harness, "", generation=3, resource="gavel/any", secrets=("TOKEN",))[1]
    harness.backend.execute([resource(harness, "any"), last])
    end = exit_of(harness, "j1", 3)
    assert end.outcome is GangOutcome.NOT_STARTED
    assert end.message == "there is no secret TOKEN; store it with gavel secret set TOKEN"


def test_the_setup_has_the_secrets_too_masked_in_its_log(
    harness: LocalHarness, store: SecretStore, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nmkdir -p $4/bin; ln -s /bin/sh $4/bin/python\n")
    python.chmod(0o755)
    line = 'echo "with $TOKEN"'
    harness.backend.execute(script(harness, "true", setup=line, python=str(python), secrets=("TOKEN",)))
    assert exit_of(harness, "j1").log_tail == "[setup] with ***"
    (log,) = (harness.folder / "environments").glob("*/setup.log")
    assert log.read_text() == "[setup] with ***\n"


def test_a_gang_that_is_adopted_again_has_names_only(harness: LocalHarness, store: SecretStore) -> None:
    harness.backend.execute(script(harness, "sleep 60", secrets=("TOKEN",)))
    kept = json.loads((directory(harness, "j1") / "gang.json").read_text())["instruction"]
    assert kept["secrets"] == ["TOKEN"]
