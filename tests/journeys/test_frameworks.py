"""A script of each kind becomes preemptible by at most six lines, and ends with the same figures when it is preempted.

With the real libraries: in `make test-full`, where `make frameworks-env` has installed them.
"""

from pathlib import Path

import pytest

from tests.journeys.journey import KINDS, WITH_LIBRARIES, Journey, by_hand, changed_lines

LINES_MAX = 6
STOPS = {
    "lightning": (7, 65, 100),
    "cnn": (7, 40, 71),
    "trainer": (7, 32, 71),
    "ddp": (5, 32, 50),
    "fsdp": (7, 32, 50),
    "keras": (2, 3, 5),
    "accumulate": (7, 66, 103),
    "fsdp_accumulate": (4, 37, 50),
}
GANGS = ("ddp", "fsdp", "fsdp_accumulate")
SUMMED = ("accumulate", "fsdp_accumulate")


@pytest.mark.parametrize("kind", KINDS)
def test_few_lines_make_a_script_preemptible(kind: str) -> None:
    lines = changed_lines(kind)
    assert 0 < len(lines) <= LINES_MAX, lines


@pytest.mark.parametrize("kind", [*KINDS, "fsdp", "accelerate", *SUMMED])
@WITH_LIBRARIES
@pytest.mark.timeout(900)
def test_a_preempted_script_ends_as_one_that_was_not(kind: str, tmp_path: Path) -> None:
    """1 the changed script at once, 2 with three preemptions, one of them between two epochs (Lightning: just after),
    3 the original by hand: all print the same figures."""
    ranks = 2 if kind in GANGS else 1
    whole, parts = (Journey(kind, tmp_path / name, ranks) for name in ("whole", "parts"))
    assert whole.run() == [0] * ranks, whole.outputs
    for stop in STOPS.get(kind, (7, 64, 100)):
        assert parts.run(stop) == [75] * ranks, parts.outputs
        assert parts.step == stop
    assert parts.run() == [0] * ranks, parts.outputs
    assert parts.final() == pytest.approx(whole.final(), rel=1e-6)
    # Lightning draws from torch's random state for a loader that it knows, and so shuffles it in another order
    if kind not in (*GANGS, *SUMMED, "accelerate", "lightning"):
        by_hand_alone = by_hand(kind, "original.py", tmp_path)
        assert by_hand_alone.returncode == 0, by_hand_alone.stderr
        figures = [line for line in by_hand_alone.stdout.splitlines() if line.startswith("final")]
        assert [float(each) for each in figures[0].split()[1:]] == pytest.approx(whole.final(), rel=1e-6)


WRAPPED = """import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from gavel_runtime.torch import checkpointed

dist.init_process_group("gloo")
loader = torch.utils.data.DataLoader([torch.ones(8)])
checkpointed(loader=loader, epochs=1, model=MODEL)
"""


@pytest.mark.parametrize("model", ["WRAPPER", "torch.nn.Sequential(WRAPPER)"])
@WITH_LIBRARIES
def test_a_model_of_the_older_fsdp_is_refused_with_what_to_use_instead(model: str, tmp_path: Path) -> None:
    """Also where the wrapper is around a part of the model."""
    script = tmp_path / "train.py"
    wrapper = 'FullyShardedDataParallel(torch.nn.Linear(8, 1), device_id=torch.device("cpu"))'
    script.write_text(WRAPPED.replace("MODEL", model.replace("WRAPPER", wrapper)))
    journey = Journey(str(script), tmp_path)
    assert journey.run() == [1]
    assert "model: FullyShardedDataParallel" in journey.outputs[0] and "fully_shard(model)" in journey.outputs[0]
