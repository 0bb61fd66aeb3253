"""`#SBATCH` lines of a script, as options of `gavel job submit`."""

from pathlib import Path

import pytest
import typer

from gavel.cli.sbatch_lines import options_of_sbatch


def read(folder: Path, *lines: str) -> tuple[list[str], list[str]]:
    script = folder / "job.sh"
    script.write_text("\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "", "python train.py", ""]))
    return options_of_sbatch(str(script))


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        (["--job-name=resnet"], ["--name=resnet"]),
        (["-J resnet"], ["--name=resnet"]),
        (["--gpus=4"], ["--scale-factor=4"]),
        (["-G a100:4"], ["--scale-factor=4", "--accelerator-types=a100"]),
        (["--nodes=2", "--gres=gpu:A100:4"], ["--scale-factor=8", "--accelerator-types=a100"]),
        (["-N2", "--gpus-per-node=4"], ["--scale-factor=8"]),
        (["-n 6 --gpus-per-task=1"], ["--scale-factor=6"]),
        (["--gres=gpu"], ["--scale-factor=1"]),
        (["--ntasks=3"], ["--scale-factor=3"]),
        (["-N 2", "--ntasks-per-node=4", "--cpus-per-task=6"], ["--scale-factor=8", "--cpus=6"]),
        (["--gpus=4", "-c 16"], ["--scale-factor=4", "--cpus=4"]),
        (["--gpus=4", "--mem=64G"], ["--scale-factor=4", f"--memory={16 << 30}"]),
        (["--gpus=2", "--mem-per-gpu=500"], ["--scale-factor=2", f"--memory={500 << 20}"]),
        (["-n 1", "-c 4", "--mem-per-cpu=2G"], ["--scale-factor=1", "--cpus=4", f"--memory={8 << 30}"]),
        (["--constraint=nvme&fast"], ["--node-label=nvme=true", "--node-label=fast=true"]),
        (["--chdir=/data"], ["--workdir=/data"]),
        (["--mail-type=END,FAIL"], ["--notify=end,failure"]),
        (["--gpus=4", "--gpus=2  # the later one counts"], ["--scale-factor=2"]),
    ],
)
def test_what_has_a_meaning_here_is_an_option(tmp_path: Path, lines: list[str], options: list[str]) -> None:
    assert read(tmp_path, *lines) == (options, [])


def test_what_has_none_is_named(tmp_path: Path) -> None:
    lines = ("--time=1:00:00", "-p gpu", "--account=physics --exclusive", "--gres=license:1", "--constraint=a|b")
    assert read(tmp_path, *lines) == (
        [],
        ["--account", "--constraint", "--exclusive", "--gres", "--partition", "--time"],
    )


@pytest.mark.parametrize("line", ["--nodes=1-4", "--gpus=2 --mem=lots", "-c 0"])
def test_a_value_that_is_no_size_of_a_gang_ends_the_command(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        read(tmp_path, line)
    assert "job.sh: #SBATCH --" in capsys.readouterr().err


def test_lines_after_the_first_command_are_none_of_ours(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\necho hello\n#SBATCH --gpus=4\n")
    assert options_of_sbatch(str(script)) == ([], [])
    assert options_of_sbatch(str(tmp_path / "absent")) == ([], [])
