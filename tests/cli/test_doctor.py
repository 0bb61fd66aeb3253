"""`gavel doctor`: what it says of this machine, without a service."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gavel.backends import accelerators, gpu_health
from gavel.backends.control_groups import Hierarchy
from gavel.backends.gpus import Gpu
from gavel.backends.nodes.shared_folder import MARKER
from gavel.backends.sandbox import Bubblewrap
from gavel.cli import app, doctor
from gavel.config import Settings
from gavel.daemon.doctor import Finding, findings
from gavel.errors import BackendUnavailable


@pytest.fixture(autouse=True)
def _without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerators, "_numpy_features", lambda: ["AVX2"])


def of(about: str, settings: Settings) -> list[Finding]:
    return [each for each in findings(settings) if each.about == about]


def test_each_worker_is_named_with_its_device_memory_and_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(name="NVIDIA H200", uuid="GPU-11", variable="CUDA_VISIBLE_DEVICES", memory_bytes=150 * 10**9)
    monkeypatch.setattr(accelerators, "_gpus", lambda: ([gpu], ["a line that is odd cannot be used"]))
    monkeypatch.setattr(accelerators, "_cores", lambda: ([0, 1], []))
    monkeypatch.setattr(gpu_health, "_run", lambda: "GPU-11, 0, Not Active, Not Active")
    (worker,) = of("nvidia-h200-0", Settings(state_dir=tmp_path))
    assert worker.text == "GPU-11, 150.0 GB of its own memory, cores 0,1; near it: unknown"
    notes = {each.text: each.verdict for each in of("workers", Settings(state_dir=tmp_path))}
    assert notes["a line that is odd cannot be used"] == "problem"
    monkeypatch.setattr(gpu_health, "_run", lambda: "GPU-11, 7, Not Active, Not Active")
    (worker,) = of("nvidia-h200-0", Settings(state_dir=tmp_path))
    assert worker.verdict == "problem" and "7 uncorrected memory errors" in worker.text


def test_a_machine_whose_workers_cannot_be_found_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> list[str]:
        raise BackendUnavailable("numpy does not load")

    monkeypatch.setattr(accelerators, "_numpy_features", fails)
    (finding,) = of("workers", Settings(state_dir=tmp_path))
    assert (finding.verdict, finding.text) == ("problem", "numpy does not load")


def test_a_shared_folder_that_is_not_mounted_is_a_problem(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, backend="ray", ray_checkpoint_dir=str(tmp_path / "shared"))
    (finding,) = of("shared folder", settings)
    assert finding.verdict == "problem" and "is not mounted here" in finding.text
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / MARKER).write_text("0" * 32)
    assert [each.verdict for each in of("shared folder", settings)] == ["ok"]
    at_url = Settings(state_dir=tmp_path, backend="ray", ray_checkpoint_dir="s3://bucket")
    assert of("shared folder", at_url) == []


def test_a_full_disk_and_a_missing_podman_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gavel.daemon.doctor.LOW_DISK_BYTES", 1 << 80)
    settings = Settings(state_dir=tmp_path / "not" / "yet", image_command="no-such-podman --flag")
    assert [each.verdict for each in of("disk", settings)] == ["problem"]
    assert [each.text for each in of("images", settings)] == [
        "no-such-podman is not here, so jobs with an image end at once"
    ]


def test_it_says_whether_jobs_run_in_a_sandbox_and_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def report(isolation: str, program: Bubblewrap) -> tuple[str, str]:
        monkeypatch.setattr("gavel.daemon.doctor.bubblewrap", lambda: program)
        (finding,) = of("sandbox", Settings(state_dir=tmp_path, isolation=isolation))  # type: ignore[arg-type]
        return finding.verdict, finding.text

    there, missing = Bubblewrap("/usr/bin/bwrap", "0.8.0"), Bubblewrap("", problem="bubblewrap is not here")
    assert report("auto", there) == ("ok", "jobs run in one of /usr/bin/bwrap 0.8.0")
    assert report("auto", missing) == ("note", "jobs run without one: bubblewrap is not here")
    assert report("sandbox", missing) == ("problem", "no job runs here: bubblewrap is not here")
    assert report("none", there)[0] == "note"


def test_the_command_prints_a_table_and_ends_with_1_if_something_is_to_be_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 0 and "scalar-0" in done.output, done.output
    monkeypatch.setattr(doctor, "_nodes", lambda: [{"about": "node n1", "verdict": "problem", "text": "not mounted"}])
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 1 and '"not mounted"' in done.output


def test_it_says_what_ends_the_processes_that_a_job_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def report(isolation: str, problem_of_groups: str) -> tuple[str, str]:
        monkeypatch.setattr("gavel.backends.sandbox.bubblewrap", lambda: Bubblewrap("/usr/bin/bwrap", "0.8.0"))
        monkeypatch.setattr("gavel.daemon.doctor.problem_of_groups", lambda groups: problem_of_groups)
        monkeypatch.setattr("gavel.daemon.doctor.hierarchies", lambda: {"processes": Hierarchy("processes", 2, "", "")})
        (finding,) = of("leftovers", Settings(state_dir=tmp_path, isolation=isolation))  # type: ignore[arg-type]
        return finding.verdict, finding.text

    ends = "what a job leaves running ends with its"
    assert report("auto", "") == ("ok", f"{ends} control group (version 2) and its sandbox")
    assert report("none", "") == ("ok", f"{ends} control group (version 2)")
    assert report("auto", "there are none") == ("ok", f"{ends} sandbox")
    text = "a job that kills its supervisor can leave processes: it has no sandbox, and there are none"
    assert report("none", "there are none") == ("note", text)


def test_it_says_which_files_jobs_may_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gavel.backends.sandbox.bubblewrap", lambda: Bubblewrap("/usr/bin/bwrap", "0.8.0"))

    def report(**over: str) -> tuple[str, str]:
        (finding,) = of("job folders", Settings(state_dir=tmp_path, **over))  # type: ignore[arg-type]
        return finding.verdict, finding.text

    nobody = "jobs of operator may name any file here, those of other users none but their own (job_folders)"
    assert report() == ("ok", nobody)
    assert report(job_folders="/home/{user}") == ("ok", "jobs may name what is in /home/{user} (job_folders)")
    assert report(job_folders="/")[0] == "note"
    assert report(isolation="none")[0] == "note"


def test_it_says_which_unix_users_jobs_run_as(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def report(**over: str) -> tuple[str, str]:
        (finding,) = of("job users", Settings(state_dir=tmp_path, **over))  # type: ignore[arg-type]
        return finding.verdict, finding.text

    assert report(isolation="none")[0] == "note"
    monkeypatch.setattr("gavel.backends.job_users.os.geteuid", lambda: 0)
    ok = "the jobs of each user run as a Unix user of their own, of 2000000-2000009 (job_users)"
    assert report(job_users="2000000-2000009", isolation="sandbox") == ("ok", ok)
    monkeypatch.setattr("gavel.backends.job_users.os.geteuid", lambda: 1000)
    assert report(job_users="2000000-2000009")[0] == "problem"
