"""What `gavel serve` prints at its start, where others keep and read it."""

from pathlib import Path

import pytest

from gavel.config import Settings
from gavel.daemon.service import _announce


@pytest.mark.parametrize("variable", ["JOURNAL_STREAM", "KUBERNETES_SERVICE_HOST"])
def test_a_log_that_others_read_has_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    for each in ("JOURNAL_STREAM", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(each, raising=False)
    texts: list[str] = []
    settings = Settings(state_dir=tmp_path)
    _announce(settings, "http://here", "the-token", texts.append)
    assert any("the-token" in each for each in texts)
    texts.clear()
    monkeypatch.setenv(variable, "x")
    _announce(settings, "http://here", "the-token", texts.append)
    assert not any("the-token" in each for each in texts) and any("operator.token" in each for each in texts)
