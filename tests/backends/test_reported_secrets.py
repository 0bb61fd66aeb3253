"""Secrets in what a program reports: names of metrics and phases, and the note, go into the store and its answers."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends.harness import find
from gavel.backends.launch import Preparation
from gavel.backends.output import Mask, shortened
from gavel.backends.reports import ReportReader
from gavel.backends.secret_store import SecretStore
from gavel_runtime._restore import _restored_before
from tests.backends.clusters import LocalHarness, eventually, script

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
SECRETS = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=("Cc",)), min_size=8, max_size=30
)
AROUND = st.text("ab é", max_size=8)


@settings(max_examples=1000 if IS_FULL else 60, deadline=None)
@given(secret=SECRETS, before=AROUND, after=AROUND)
def test_no_text_of_a_report_has_a_secret(secret: str, before: str, after: str) -> None:
    text = before + secret + after
    note = "x" * (1000 - len(before) - 4) + text  # where it would be cut off, in the middle of the secret
    line: dict[str, Any] = {"sequence": 1, "kind": "progress", "step": 1, "note": note}
    line |= {"metrics": {text: 0.5}, "phases": {text[:32]: 0.5, secret: 1.0}}
    with TemporaryDirectory() as folder:
        path = Path(folder, "reports.jsonl")
        path.write_text(json.dumps(line) + "\n")
        reader = ReportReader(path, generation=1, start_step=0, total_steps=9, checkpoints=Path(folder))
        reader.mask = Mask([secret])
        (report,) = reader.read()
    texts = [report.note, *report.metrics, *report.phases_s]
    assert not [each for each in texts if secret in each]
    masked = shortened(note.replace(secret, "***"), 1000)
    assert report.note == "".join(each if each.isprintable() else "?" for each in masked)


@settings(max_examples=1000 if IS_FULL else 60, deadline=None)
@given(secret=SECRETS, before=AROUND, length=st.integers(1, 40))
def test_a_text_that_was_cut_elsewhere_shows_no_part_of_a_secret(secret: str, before: str, length: int) -> None:
    """The runtime of a job does not know which of its texts are secrets: it cuts, and marks where it did."""
    cut = shortened(f"- {before}{secret}", length)
    masked = Mask([secret]).text(cut)
    begun = len(cut.removesuffix("…")) - len(before) - 2
    assert begun <= 0 or secret[:begun] == cut[len(before) + 2 :][:begun]
    assert begun <= 0 or len(masked) <= len(f"- {before}***…")


def test_an_error_of_a_checkpoint_has_no_part_of_a_secret_where_it_is_cut(capfd: pytest.CaptureFixture[str]) -> None:
    secret = "s3cret-value-of-ann"
    error = ValueError("x" * 380 + secret)
    step, note = _restored_before(Path("6-20"), Path("5-10"), lambda path: None, error)
    assert step == 10 and secret in capfd.readouterr().err, "the whole of it, which is masked on its way to the log"
    assert "xx" in note and "s3c" in note and "s3c" not in Mask([secret]).text(note)


def test_a_gang_s_reports_are_masked_before_and_after_a_restart_of_the_service(harness: LocalHarness) -> None:
    store = SecretStore(harness.folder)
    store.put("ann", "TOKEN", "s3cret-value-of-ann")
    preparation = Preparation(secrets_of=store.values)
    harness.crash()
    harness.backend = harness.open(preparation=preparation)
    report = '{\\"sequence\\": %s, \\"kind\\": \\"progress\\", \\"step\\": %s, \\"metrics\\": {\\"$TOKEN\\": 1}}'
    tell = f'echo "{report % (1, 1)}" >> $GAVEL_GANG_DIR/reports.jsonl; while [ ! -e $GAVEL_GANG_DIR/go ]; do :; done;'
    tell += f'echo "{report % (2, 2)}" >> $GAVEL_GANG_DIR/reports.jsonl'
    harness.backend.execute(script(harness, tell, secrets=("TOKEN",), total_steps=9))

    def reported() -> list[dict[str, float]]:
        seen = find(harness.backend.observe(), "j1")
        return [dict(each.metrics) for each in seen.reports] if seen else []

    eventually(lambda: reported() == [{"***": 1.0}])
    harness.crash()
    harness.backend = harness.open(preparation=preparation)
    (harness.folder / "gangs" / "j1" / "1" / "job" / "go").touch()
    eventually(lambda: len(reported()) == 2)
    assert all(each == {"***": 1.0} for each in reported())
