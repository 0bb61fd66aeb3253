"""Tab in a real bash offers commands, and names that the service has."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.cli import completion
from gavel.types import Scope
from tests.api.conftest import Service, service

__all__ = ["service"]

ASK = """
eval "$({gavel} --show-completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_gavel_completion {gavel}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
@pytest.mark.parametrize(
    ("words", "offered"), [("gavel job sub", "submit"), ("gavel tier se", "set"), ("gavel tier show go", "gold")]
)
def test_bash_is_offered_what_fits(service: Service, tmp_path: Path, words: str, offered: str) -> None:
    gavel = Path(sys.executable).parent / "gavel"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    env |= {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token("operator", Scope.OPERATOR)}
    script = ASK.format(gavel=gavel, words=words)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert offered in done.stdout.split() and done.stderr == ""


def test_names_come_from_the_service_and_none_when_it_cannot_be_asked(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GAVEL_URL", service.url)
    monkeypatch.setenv("GAVEL_TOKEN", service.token("operator", Scope.OPERATOR))
    job_id = service.operator().post("/v1/jobs", json={"argv": ["x"], "total_steps": 1, "tier": "gold"}).json()["id"]
    assert completion.jobs(job_id[:14]) == [job_id]
    assert completion.tiers("") == ["default", "gold", "silver"] and completion.tiers("s") == ["silver"]
    assert "fifo" in completion.policies("f")
    monkeypatch.setenv("GAVEL_TOKEN", "wrong")
    assert completion.jobs("") == []
    monkeypatch.delenv("GAVEL_URL")
    assert completion.jobs("") == []
    assert capsys.readouterr().err == ""
