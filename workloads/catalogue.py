"""The job kinds that all users of a cluster share: five real training programs, each in two sizes.

Only these kinds share measurements between users. What they gain from a faster accelerator type differs by design, as
between the models of Gavel (OSDI 2020, figure 1): the perceptron and the recurrent network several-fold, the
convolutional network a little, the recommender and the reinforcement learner nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gavel.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class JobKind:
    """What determines the speed of a job: a program and its arguments."""

    name: str
    module: str
    arguments: tuple[str, ...]
    description: str


def _sizes(model: str, description: str, *batch_sizes: int) -> tuple[JobKind, ...]:
    return tuple(
        JobKind(
            name=f"{model}-b{batch_size}",
            module=f"workloads.training.{model}",
            arguments=("--batch-size", str(batch_size)),
            description=f"{description}, {batch_size} examples a step",
        )
        for batch_size in batch_sizes
    )


_KINDS = (
    *_sizes("mlp", "multi-layer perceptron on images", 256, 1024),
    *_sizes("rnn", "recurrent network on waves", 256, 1024),
    *_sizes("cnn", "convolutional network on images", 64, 256),
    *_sizes("recsys", "recommender with embedding tables", 16_384, 65_536),
    *_sizes("rl", "actor and critic in a grid world", 96, 384),
)

CATALOGUE: Mapping[str, JobKind] = MappingProxyType({kind.name: kind for kind in _KINDS})
"""Every job kind by its name, which matches [a-z0-9]([-a-z0-9]*[a-z0-9])?."""


def argv_of(name: str) -> tuple[str, ...]:
    """Return the command of a rank of this job kind; `python` is the one on the PATH that the backend sets.

    Raises InvalidRequest for a name that is not in the catalogue.
    """
    if name not in CATALOGUE:
        raise InvalidRequest("kind", f"{name!r} is not in the catalogue; it has {', '.join(CATALOGUE)}")
    kind = CATALOGUE[name]
    return ("python", "-m", kind.module, *kind.arguments)
