"""The state of a PyTorch training in a checkpoint: one file, or shards where the model is sharded over the ranks."""

import copy
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from gavel_runtime._job import job
from gavel_runtime._versions import TESTED

STATE_FILE = "state.pt"
SHARDS = "shards"


class TorchState:
    """Objects with `state_dict` and `load_state_dict`, by name; `own` is what each rank has for itself.

    `save` is called in every rank. It copies the state to host memory, and the function that it returns in rank 0
    writes the copy. A sharded model and its optimizer are written by all ranks at once, before `save` returns.
    `is_elastic`: what each rank has for itself is the same in all of them, so that another number of ranks can load it.
    """

    def __init__(self, objects: Mapping[str, Any], own: Mapping[str, Any], *, is_elastic: bool = False) -> None:
        for name, each in {**objects, **own}.items():
            if _is_flattened(each):
                raise TypeError(
                    f"{name}: FullyShardedDataParallel has no state of one rank; use fully_shard(model) in its place"
                )
            if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
                raise TypeError(f"{name}: a {type(each).__name__} has no state_dict and load_state_dict")
        sharded = {name for name, each in objects.items() if _is_sharded(each)}
        self._sharded = {name: each for name, each in objects.items() if sharded and name in sharded | {"optimizer"}}
        self._whole = {name: each for name, each in objects.items() if name not in self._sharded}
        self._own = own
        self._is_elastic = is_elastic

    def save(self, folder: Path) -> Callable[[], object] | None:
        """Write the shards into the folder; return what writes the rest, in rank 0."""
        if self._sharded:
            _save_shards(self._sharded, folder / SHARDS)
        own = pickle.dumps({name: each.state_dict() for name, each in self._own.items()})
        ranks = job.all_gather(own) if job.world_size > 1 else (own,)
        if not job.is_rank_zero:
            return None
        whole = {name: host_copy(each.state_dict()) for name, each in self._whole.items()}
        return lambda: torch.save({"whole": whole, "ranks": list(ranks)}, folder / STATE_FILE)

    def load(self, folder: Path) -> None:
        """Load everything into the objects, on whichever device they are."""
        if self._sharded:
            _load_shards(self._sharded, folder / SHARDS)
        # the checkpoint is this job's own, and schedulers may have any Python object in theirs
        state = torch.load(folder / STATE_FILE, map_location="cpu", weights_only=False)
        missing = sorted(self._whole.keys() - state["whole"].keys())
        if missing:
            raise KeyError(f"{', '.join(missing)}: not in the checkpoint {folder}; was it written by another script?")
        for name, each in self._whole.items():
            each.load_state_dict(state["whole"][name])
        own = pickle.loads(self._own_of(state["ranks"]))  # noqa: S301  the job's own
        for name, each in self._own.items():
            each.load_state_dict(own[name])

    def _own_of(self, ranks: list[bytes]) -> bytes:
        """What this rank has for itself. Raises ValueError if as many ranks as there are now cannot go on from it."""
        if len(ranks) == job.world_size:
            return ranks[job.rank]
        if not self._is_elastic:
            raise ValueError(
                f"loader: the checkpoint is of {len(ranks)} ranks and this gang has {job.world_size}; the batches of "
                "an elastic job are gavel_runtime.torch.GlobalBatches(dataset, global_batch=..)"
            )
        if "gradients" in self._own:
            raise ValueError("gradients: ranks of another number cannot go on from these; sum them up within a step")
        return ranks[0]


class Gradients:
    """The gradients of a model as they are between two batches; those of each rank are its own until they are reduced.

    Of parameters that FSDP shards they are the rank's shards, and what it has not reduced yet
    (`set_requires_gradient_sync(False)`, Accelerate's `accumulate`). Raises TypeError where torch does not show them.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        _sharded_parameters(model)
        self._model = model

    def state_dict(self) -> dict[str, dict[Any, torch.Tensor]]:
        """Return the gradients that there are, by the names of their parameters, in host memory."""
        named = self._model.named_parameters()
        reduced = {name: host_copy(_local(each.grad)) for name, each in named if each.grad is not None}
        unreduced = {number: _unreduced(each) for number, each in enumerate(_sharded_parameters(self._model))}
        return {
            "reduced": reduced,
            "unreduced": {number: host_copy(grad) for number, grad in unreduced.items() if grad is not None},
        }

    def load_state_dict(self, state: Mapping[str, Mapping[Any, torch.Tensor]]) -> None:
        """Give each parameter its gradient, on its device; those without one have none."""
        reduced, unreduced = state["reduced"], state["unreduced"]
        for name, each in self._model.named_parameters():
            each.grad = _as_of(each, reduced[name]) if name in reduced else None
        for number, each in enumerate(_sharded_parameters(self._model)):
            if number in unreduced:
                each.unsharded_accumulated_grad = unreduced[number].to(each.sharded_param.device)


def _local(gradient: Any) -> Any:
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient


def _as_of(parameter: Any, gradient: torch.Tensor) -> torch.Tensor:
    """Return the gradient on the parameter's device, as a shard where the parameter is one."""
    gradient = gradient.to(parameter.device)
    if not hasattr(parameter, "to_local"):
        return gradient
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        gradient, parameter.device_mesh, parameter.placements, shape=parameter.shape, stride=parameter.stride()
    )


def _sharded_parameters(model: torch.nn.Module) -> list[Any]:
    """Return what `fully_shard` keeps of each parameter. It has no public way to gradients that are not reduced yet."""
    if not _is_sharded(model):
        return []
    from torch.distributed.fsdp import FSDPModule

    states = [each._get_fsdp_state() for each in model.modules() if isinstance(each, FSDPModule)]
    try:
        return [each for state in states for group in state._fsdp_param_groups for each in group.fsdp_params]
    except AttributeError:
        raise TypeError(
            f"gradients: those of sharded parameters cannot be read in torch {torch.__version__}; install "
            f"torch=={TESTED['torch']}.*, or sum them within one step"
        ) from None


def _unreduced(sharded: Any) -> Any:
    """Return the gradient of the whole parameter that this rank has summed up; None where there is none."""
    whole = getattr(sharded, "_unsharded_param", None)
    return sharded.unsharded_accumulated_grad if whole is None or whole.grad is None else whole.grad


class Values:
    """The variables of a script that `function` returns, of which one step leaves to the next what it needs."""

    def __init__(self, function: Callable[[], tuple[Any, ...]]) -> None:
        self._function = function
        self._restored: tuple[Any, ...] | None = None

    def latest(self) -> tuple[Any, ...]:
        """Return the values of the checkpoint, tensors on the devices of those of the script; else as they are."""
        now = self._function()
        return now if self._restored is None else tuple(map(_moved, self._restored, now))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the values as they are now. Raises TypeError if they are no tuple."""
        values = self._function()
        if not isinstance(values, tuple):
            raise TypeError(f"values: the function returned a {type(values).__name__}; let it return a tuple: (best,)")
        return {"values": host_copy(values)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have `latest` return the values of `state`."""
        self._restored = state["values"]


def _moved(restored: Any, present: Any) -> Any:
    both = isinstance(restored, torch.Tensor) and isinstance(present, torch.Tensor)
    return restored.to(present.device) if both else restored


def host_copy(value: Any) -> Any:
    """Return a copy of nested dicts and lists, with every tensor in host memory."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: host_copy(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(host_copy(each) for each in value)
    return copy.deepcopy(value)


def _is_sharded(each: Any) -> bool:
    """Return whether it is a module with parameters that are spread over the ranks (FSDP)."""
    if not isinstance(each, torch.nn.Module) or not torch.distributed.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return any(isinstance(parameter, DTensor) for parameter in each.parameters())


def _is_flattened(each: Any) -> bool:
    """Return whether FSDP has put parameters of it into flat ones, with the older FullyShardedDataParallel."""
    parts = each.modules() if isinstance(each, torch.nn.Module) else ()
    return any(base.__name__ == "FullyShardedDataParallel" for part in parts for base in type(part).__mro__)


def _save_shards(objects: Mapping[str, Any], folder: Path) -> None:
    from torch.distributed import checkpoint

    checkpoint.save(_sharded_state(objects), checkpoint_id=str(folder))


def _load_shards(objects: Mapping[str, Any], folder: Path) -> None:
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import set_state_dict

    if not _has_optimizer_state(folder):  # no step of the optimizer was done: it begins as it is
        _load_model_shards(objects["model"], folder)
        return
    state = _sharded_state(objects)
    checkpoint.load(state, checkpoint_id=str(folder))
    model, optimizers = _model_and_optimizers(objects)
    set_state_dict(model, optimizers, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def _has_optimizer_state(folder: Path) -> bool:
    from torch.distributed.checkpoint import FileSystemReader

    names = FileSystemReader(str(folder)).read_metadata().state_dict_metadata
    return any(name.startswith("optimizer.state.") for name in names)


def _load_model_shards(model: torch.nn.Module, folder: Path) -> None:
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    state = {"model": get_model_state_dict(model)}
    checkpoint.load(state, checkpoint_id=str(folder))
    set_model_state_dict(model, state["model"])


def _sharded_state(objects: Mapping[str, Any]) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer = get_state_dict(*_model_and_optimizers(objects))
    return {"model": model, "optimizer": optimizer}


def _model_and_optimizers(objects: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    return objects["model"], [each for name, each in objects.items() if name == "optimizer"]
