"""Which interpreter the command line submits with: the caller's own, where the service lets jobs name its folder."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gavel.backends.machine import boot_id
from gavel.cli.program import of_caller


@pytest.mark.parametrize("is_open", [True, False])
def test_an_environment_that_jobs_may_not_name_is_left_out_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_open: bool
) -> None:
    """1 the caller's own is left out where it may not be named, 2 one that the caller names is sent."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/env")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    limits = {"machine": boot_id(), "folders": [str(tmp_path) if is_open else "/usr"]}
    client: Any = SimpleNamespace(code_limits=lambda: limits)
    fields = of_caller(client, ["train.py"], tmp_path, None, False, {"argv": ["train.py"]})
    assert fields.get("python") == (str(python) if is_open else None)
    assert ("jobs may not name its folder here" in capsys.readouterr().err) != is_open
    assert of_caller(client, ["train.py"], tmp_path, str(python), False, {"argv": ["train.py"]})["python"] == str(
        python
    )
