"""The examples that the README shows, run as it says."""

from pathlib import Path

import pytest

from tests.workloads.gang import ROOT, Gang, launch, until

EXAMPLES = ROOT / "examples"


@pytest.mark.full
def test_the_example_trains_by_hand(tmp_path: Path) -> None:
    process = launch((str(EXAMPLES / "train.py"), ""), {"OUT": str(tmp_path)})
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert float(output.removeprefix("error ")) < 0.02
    assert list(tmp_path.iterdir()) == []


def test_the_example_stops_and_goes_on(gang: Gang) -> None:
    gang.start(str(EXAMPLES / "train.py"), "", total=100_000)
    until(lambda: any(report["step"] for report in gang.reports()))  # stopped earlier, it has nothing to go on from
    gang.lease(600, stop=True)
    assert gang.finish()[0] == [75]
    done = gang.reports()[-1]["step"]
    later = Gang(gang.root, generation=8)
    later.start(str(EXAMPLES / "train.py"), "", total=done + 2, start=done, checkpoint=gang.checkpoints / f"7-{done}")
    assert later.finish()[0] == [0]
    assert later.reports()[-1]["step"] == done + 2


def test_the_plain_example_goes_on_from_its_own_file_after_a_kill(gang: Gang) -> None:
    gang.start(str(EXAMPLES / "plain.py"), "", total=2000)
    until((gang.checkpoints / "plain.json").exists)
    gang.ranks[0].terminate()
    assert gang.finish()[0] == [-15]
    later = Gang(gang.root, generation=8).start(str(EXAMPLES / "plain.py"), "", total=60)
    codes, outputs = later.finish()
    assert codes == [0]
    assert outputs[0].startswith("estimate 1.414")
