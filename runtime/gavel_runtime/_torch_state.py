"""The state of a PyTorch training in a checkpoint: one file, or shards where the model is sharded over the ranks."""

import copy
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from gavel_runtime._job import job

STATE_FILE = "state.pt"
SHARDS = "shards"


class TorchState:
    """Objects with `state_dict` and `load_state_dict`, by name; `own` is what each rank has for itself.

    `save` is called in every rank. It copies the state to host memory, and the function that it returns in rank 0
    writes the copy. A sharded model and its optimizer are written by all ranks at once, before `save` returns.
    """

    def __init__(self, objects: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        for name, each in {**objects, **own}.items():
            if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
                raise TypeError(f"{name}: a {type(each).__name__} has no state_dict and load_state_dict")
        sharded = {name for name, each in objects.items() if _is_sharded(each)}
        self._sharded = {name: each for name, each in objects.items() if sharded and name in sharded | {"optimizer"}}
        self._whole = {name: each for name, each in objects.items() if name not in self._sharded}
        self._own = own

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
        own = pickle.loads(state["ranks"][job.rank])  # noqa: S301  the job's own
        for name, each in self._own.items():
            each.load_state_dict(own[name])


class Gradients:
    """The gradients of a model as they are between two batches; those of each rank are its own until they are reduced.

    Raises TypeError for a model with sharded parameters.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        if _is_sharded(model):
            raise TypeError("gradients: those of sharded parameters are not saved; sum them within one step")
        self._model = model

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the gradients that there are, by the names of their parameters, in host memory."""
        named = self._model.named_parameters()
        return {name: host_copy(each.grad) for name, each in named if each.grad is not None}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Give each parameter its gradient, on its device; those without one have none."""
        for name, each in self._model.named_parameters():
            each.grad = state[name].to(each.device) if name in state else None


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


def _save_shards(objects: Mapping[str, Any], folder: Path) -> None:
    from torch.distributed import checkpoint

    checkpoint.save(_sharded_state(objects), checkpoint_id=str(folder))


def _load_shards(objects: Mapping[str, Any], folder: Path) -> None:
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import set_state_dict

    state = _sharded_state(objects)
    checkpoint.load(state, checkpoint_id=str(folder))
    model, optimizers = _model_and_optimizers(objects)
    set_state_dict(model, optimizers, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def _sharded_state(objects: Mapping[str, Any]) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer = get_state_dict(*_model_and_optimizers(objects))
    return {"model": model, "optimizer": optimizer}


def _model_and_optimizers(objects: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    return objects["model"], [each for name, each in objects.items() if name == "optimizer"]
