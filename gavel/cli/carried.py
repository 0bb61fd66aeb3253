"""What a PyTorch loop carries from step to step besides its model: variables to keep, and what nobody can keep."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gavel.cli.batch_loops import BatchLoop, Function
from gavel.cli.loop_exits import Placed, assigned_by, exits, key_of, mutated_by, placed, read_in
from gavel.cli.script_text import Script

_STATELESS = ("torch", "torchvision", "numpy", "transformers", "accelerate", "time", "math", "tqdm")


@dataclass(frozen=True)
class Carried:
    """The variables of one loop over epochs with its loop over batches; `saved` are the names that are saved anyway."""

    script: Script
    loop: BatchLoop
    saved: frozenset[str]

    @cached_property
    def function(self) -> Function | None:
        """The function that has the loop over batches, where that is not in the loop over epochs itself."""
        if self.loop.statement in ast.walk(self.loop.epochs.statement):
            return None
        functions = [each for each in ast.walk(self.script.tree) if isinstance(each, Function)]
        return next(each for each in functions if self.loop.statement in ast.walk(each))

    @cached_property
    def epoch_exits(self) -> list[Placed]:
        """What leaves the training before its last epoch."""
        return exits(self.loop.epochs.statement)

    @cached_property
    def values(self) -> list[str]:
        """The variables to keep: begun before the loop over epochs, and used and changed in it."""
        return [key for key in self._over_epochs if key in self._begun_plainly or key in self._decisive]

    @property
    def obstacle(self) -> str:
        """A sentence on what decides where a loop is left and is in no checkpoint; empty if there is nothing such."""
        for key in self._decisive:
            if key in self._begun_each_epoch:
                return (
                    f"a loop is left early where `{key}` says so. It begins anew in each epoch, and so would in the "
                    f"middle of one when the job resumes: begin it before the loop over epochs, too, name it there "
                    f"(values=lambda: ({key},) and `{key}, = run.values`), and begin it anew where run.first_batch is 0"
                )
            if key not in self.saved and self._counts(key):
                name = key.rpartition(".")[2]
                return (
                    f"a loop is left early where `{key}` says so, and nothing saves what it has counted: give it "
                    f"state_dict and load_state_dict, and name it: checkpointed(.., {name}={key})"
                )
        return ""

    @cached_property
    def _all(self) -> list[Placed]:
        own = [] if self.function is None else list(placed(self.function.body))
        return [*placed(self.loop.epochs.statement.body), *own]

    @cached_property
    def _over_epochs(self) -> list[str]:
        """The variables that have a value before the loop over epochs, and are read and changed in it."""
        statement, own = self.loop.epochs.statement, self.function
        seen = [each.statement for each in self._all if own is None or each.statement not in ast.walk(own)]
        attributes = [key for key in self._changed(self._all) if key.startswith("self.")]
        set_by_loop = assigned_by(statement) if isinstance(statement, ast.For) else read_in(statement.test.left)  # type: ignore[attr-defined]  # a comparison
        names = self.script.names_before(statement)
        changed = {*self._changed(each for each in self._all if each.statement in seen), *attributes}
        carried = [key for key in _read_first(statement.body, set(set_by_loop)) if key in changed]
        carried += [
            key for key in attributes if key not in carried and key in read_in(*(each.statement for each in self._all))
        ]
        return [key for key in carried if key in names or key in self._begun_plainly]

    @cached_property
    def _begun_plainly(self) -> set[str]:
        """The variables that begin as a number, a text, or an empty list or dict, outside the loops."""
        inside = {id(each.statement) for each in self._all}
        begun = [node for node in ast.walk(self.script.tree) if isinstance(node, ast.Assign) and id(node) not in inside]
        return {key for node in begun if _is_plain(node.value) for key in assigned_by(node)}

    @cached_property
    def _begun_each_epoch(self) -> set[str]:
        """The variables that are counted up over the batches of one epoch."""
        batches = list(placed(self.loop.statement.body))
        over_batches = set(_read_first(self.loop.statement.body, set(assigned_by(self.loop.statement))))
        over_batches = {key for key in over_batches if key in self._changed(batches)}
        over_batches |= {key for each in batches for key in mutated_by(each.statement)}
        inside = {id(each.statement) for each in batches}
        around = [each for each in self._all if id(each.statement) not in inside]
        return over_batches & {key for each in around for key in assigned_by(each.statement)}

    @cached_property
    def _decisive(self) -> list[str]:
        """The variables on which depends where a loop is left, through what they are computed from."""
        left = [*self.epoch_exits, *exits(self.loop.statement)]
        keys = read_in(*(condition for each in left for condition in each.conditions))
        for key in keys:  # grows on the way
            if self.function is not None and key in (self.function.name, f"self.{self.function.name}"):
                returned = [each for each in self._all if isinstance(each.statement, ast.Return)]
                keys += [new for each in returned for new in read_in(each.statement) if new not in keys]
            for each in self._all:
                if key in (*assigned_by(each.statement), *mutated_by(each.statement)):
                    source = getattr(each.statement, "iter", None) or getattr(each.statement, "value", None)
                    keys += [new for new in read_in(source, *each.conditions) if new not in keys]
        return keys

    def _changed(self, lines: Iterable[Placed]) -> list[str]:
        return [key for each in lines for key in (*assigned_by(each.statement), *mutated_by(each.statement))]

    def _counts(self, key: str) -> bool:
        """Return whether it is an object, of the script or of a library without a known state, that is called."""
        made = [value for name, value in self.script.made() if name == key]
        called = any(
            isinstance(node, ast.Call) and key in (key_of(node.func), key_of(getattr(node.func, "value", node.func)))
            for each in self._all
            for node in ast.walk(each.statement)
        )
        return called and any(self._may_count(each) for each in made)

    def _may_count(self, made: ast.Call) -> bool:
        name = self.script.origin(made.func)
        own = [node for node in self.script.tree.body if isinstance(node, ast.ClassDef) and node.name == name]
        if own:
            bases = [self.script.origin(base).partition(".")[0] for base in own[0].bases]
            return not any(base in _STATELESS for base in bases)
        return "." in name and name.partition(".")[0] not in _STATELESS and name.rpartition(".")[2][:1].isupper()


def _read_first(body: list[ast.stmt], always_set: set[str]) -> list[str]:
    """Return the variables that the statements read where no statement before is certain to have set them."""
    names: list[str] = []
    for statement in body:
        updated = [key for each in placed([statement]) for key in _updated(each.statement)]
        names += [key for key in (*read_loads(statement), *updated) if key not in always_set and key not in names]
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            always_set = always_set | set(assigned_by(statement))
    return list(dict.fromkeys(names))


def _updated(statement: ast.stmt) -> list[str]:
    return assigned_by(statement) if isinstance(statement, ast.AugAssign) else []


def read_loads(statement: ast.stmt) -> list[str]:
    """Return the variables that the statement reads, and does not only set."""
    nodes = [node for node in ast.walk(statement) if isinstance(getattr(node, "ctx", None), ast.Load)]
    return [key for node in nodes if isinstance(node, ast.expr) and (key := key_of(node)) not in (None, "self")]


def _is_plain(value: ast.expr) -> bool:
    """Return whether it is a number, a text, an infinity, or a list, dict or tuple of such."""
    if isinstance(value, ast.Tuple | ast.List):
        return all(map(_is_plain, value.elts))
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in ("float", "int", "list", "dict", "set") and all(map(_is_plain, value.args))
    if isinstance(value, ast.UnaryOp):
        return _is_plain(value.operand)
    return isinstance(value, ast.Constant) or ast.unparse(value) in ("{}", "math.inf", "np.inf", "torch.inf")
