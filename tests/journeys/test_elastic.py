"""An elastic training with PyTorch goes on with other numbers of ranks, and its losses are those of one that did not.

With the real library: in `make test-full`, where `make frameworks-env` has installed it.
"""

from pathlib import Path

import pytest

from tests.journeys.journey import SCRIPTS, WITH_LIBRARIES, Journey

STEPS = 5 * (200 // 24)
WRAPPERS = {
    "": "",
    "ddp": "from torch.nn.parallel import DistributedDataParallel\nmodel = DistributedDataParallel(model)\n",
    "fsdp": "from torch.distributed.fsdp import fully_shard\nfully_shard(model)\n",
}
WITHOUT_SIZES = """import torch
import torch.distributed as dist
from gavel_runtime.torch import checkpointed

dist.init_process_group("gloo")
loader = torch.utils.data.DataLoader([torch.ones(8)] * 8)
model = torch.nn.Linear(8, 1)
run = checkpointed(loader=loader, epochs=1, model=model)
for _ in run.epochs():
    for batch in run.batches():
        pass
"""


def script_of(wrapper: str, folder: Path) -> str:
    """The script, or one with a wrapper that takes the mean of gradients over the ranks."""
    if not wrapper:
        return "elastic"
    text = (SCRIPTS / "elastic" / "changed.py").read_text()
    for before, after in {
        "optimizer = ": f"{WRAPPERS[wrapper]}optimizer = ",
        "loss.backward()": "(job.world_size * loss).backward()",
        "        sum_gradients(model)\n": "",
    }.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    (folder / "train.py").write_text(text)
    return str(folder / "train.py")


@WITH_LIBRARIES
@pytest.mark.timeout(600)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_losses_are_the_same_at_sizes_2_1_and_3_one_after_another(wrapper: str, tmp_path: Path) -> None:
    """1 without a change, 2 in the middle of an epoch, between two epochs, and in the middle again: each time another
    size; dropout and augmentation are drawn again as they were."""
    alone, changing = (
        Journey("elastic", tmp_path / "alone"),
        Journey(script_of(wrapper, tmp_path), tmp_path / "changing"),
    )
    assert alone.run() == [0], alone.outputs
    for size, stop in ((2, 5), (1, 16), (3, 29)):
        changing.world_size = size
        assert changing.run(stop) == [75] * size, changing.outputs
        assert changing.step == stop
    changing.world_size = 2
    assert changing.run() == [0, 0], changing.outputs
    assert len(alone.final()) == STEPS
    assert changing.final() == pytest.approx(alone.final(), rel=1e-9)
    assert alone.final()[-1] < 0.5 * alone.final()[0]


@WITH_LIBRARIES
def test_batches_of_another_number_of_ranks_are_refused_with_what_to_use_instead(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(WITHOUT_SIZES)
    journey = Journey(str(script), tmp_path, world_size=2)
    assert journey.run(3) == [75, 75], journey.outputs
    journey.world_size = 1
    assert journey.run() == [1]
    assert "the checkpoint is of 2 ranks and this gang has 1" in journey.outputs[0], journey.outputs
    assert "GlobalBatches(dataset, global_batch=..)" in journey.outputs[0]
