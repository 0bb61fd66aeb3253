"""What an operator is told of several backends before any of them is reached."""

from pathlib import Path

from gavel.config import Settings
from gavel.daemon.doctor import findings
from gavel.daemon.opened_backend import discovered

BACKENDS = {
    "here": {"backend": "local"},
    "far": {"backend": "ray", "ray_address": "head:6379"},
    "sim": {"backend": "simulated"},
}


def test_findings_and_notes_are_those_of_each_region(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, backend="several", backends=BACKENDS)
    named = {each.about: each.text for each in findings(settings)}
    assert named["workers (far)"].startswith("those of Ray at head:6379")
    assert "simulated nodes" in named["workers (sim)"] and "nvidia-smi (here)" in named
    discovery = discovered(settings)
    assert discovery.accelerators
    assert {"workers are those of Ray at head:6379", "the cluster is simulated: no program is run"} <= {
        *discovery.notes
    }
