"""A job's kind, where its user states none: its program, with those arguments that change its speed.

Jobs of one kind share measurements, so a sweep over learning rates and seeds is profiled once.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath

BATCH_SIZES = ("batch-size", "batchsize", "batch", "bs", "b", "per-device-train-batch-size", "train-batch-size")
SIZE_ARGUMENTS = frozenset(
    {
        *BATCH_SIZES,
        *(
            "micro-batch-size",
            "global-batch-size",
            "gradient-accumulation-steps",
            "grad-accum",
            "accumulate-grad-batches",
        ),
        *("model", "model-name", "model-name-or-path", "model-type", "model-size", "arch", "architecture", "backbone"),
        *("layers", "num-layers", "n-layers", "n-layer", "num-hidden-layers", "depth", "blocks"),
        *("hidden", "hidden-size", "hidden-dim", "dim", "d-model", "embed-dim", "n-embd", "width", "channels"),
        *("heads", "num-heads", "n-heads", "n-head", "num-attention-heads", "experts", "num-experts", "vocab-size"),
        *("seq-len", "seq-length", "sequence-length", "max-length", "max-seq-length", "block-size", "context-length"),
        *("image-size", "img-size", "resolution", "precision", "dtype", "fp16", "bf16", "fp8", "amp", "tf32"),
        *("compile", "torch-compile", "gradient-checkpointing", "optimizer", "num-workers", "workers", "dataset"),
    }
)
"""Names of arguments that usually change how fast a step is, as `_plain` spells them. docs/jobs.md lists them."""

STEM_CHARACTERS = 40
_SCRIPT = re.compile(r"\.(py|pyz|sh|bash|jl|r|pl|lua|js|ipynb)$", re.IGNORECASE)
_OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*=")  # `model.width=128`, as Hydra takes it
_LETTERS = str.maketrans("0123456789", "ghijklmnop")  # a number at a kind's end would be taken for its size


def kind_of(
    user: str,
    argv: Sequence[str],
    workdir: str | None,
    more: Collection[str] = (),
    template: Sequence[str] | None = None,
) -> tuple[str, str]:
    """Return the kind of a program, and what it was made of, for people.

    The kind is the user's, has the name of the script, and differs with the working directory, the script, its
    arguments without a name, and those arguments whose names are in SIZE_ARGUMENTS or in `more`. One batch size stands
    at its end, so that the estimator knows its relatives. `template` is the argv of the array that the job is of: its
    arguments without a name are then those of the array, so that their values do not tell the jobs of a sweep apart.
    """
    program, arguments = _split(argv)
    unnamed = _unnamed(_split(template or argv)[1])
    named = dict(_named(arguments))
    wanted = SIZE_ARGUMENTS | {_plain(name) for name in more}
    sizes = {name: value for name, value in sorted(named.items()) if name in wanted}
    batches = [name for name in sizes if name in BATCH_SIZES and re.fullmatch(r"[1-9][0-9]{0,8}", sizes[name])]
    batch = batches[0] if len(batches) == 1 else None
    counted = [*program, *unnamed]
    others = sorted((name, value) for name, value in sizes.items() if name != batch)
    digest = hashlib.sha256(json.dumps([workdir or "", counted, others]).encode()).hexdigest()[:8].translate(_LETTERS)
    suffix = f"-b{sizes[batch]}" if batch else ""
    listed = ", ".join(f"{name}={value}" if value else name for name, value in sizes.items())
    return f"{user}/{_stem(program)}-{digest}{suffix}", " ".join(counted) + (f" with {listed}" if listed else "")


def _split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words that are the program, up to its script or module, and its arguments.

    A command in the arguments (`bash -c ..`) is the program as a whole.
    """
    for index, word in enumerate(argv):
        if _SCRIPT.search(word) or (index and argv[index - 1] == "-m"):
            return argv[: index + 1], argv[index + 1 :]
        if index and word == "-c":
            return argv, ()
    return argv[:1], argv[1:]


def _named(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each argument with a name; the value of a flag is empty."""
    for name, value in _read(arguments):
        if name:
            yield _plain(name), value


def _unnamed(arguments: Sequence[str]) -> list[str]:
    return [value for name, value in _read(arguments) if not name]


def _read(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each argument; one without a name has the name ""."""
    words = iter([*arguments, ""])
    word = next(words)
    while word:
        following = next(words, "")
        name, equals, value = word.partition("=")
        if not _is_option(word) and not _OVERRIDE.match(word):
            yield "", word
        elif equals:
            yield name, value
        elif following and not _is_option(following):
            yield name, following
            following = next(words, "")
        else:
            yield name, ""
        word = following


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.match(r"-[.\d]", word)


def _plain(name: str) -> str:
    """Return an argument's name in one spelling: `--batch_size` and `train.batch-size` are `batch-size`."""
    return name.lstrip("-+~").rpartition(".")[2].lower().replace("_", "-")


def _stem(program: Sequence[str]) -> str:
    is_script = _SCRIPT.search(program[-1])
    stem = PurePosixPath(program[-1]).stem if is_script else program[-1] if "-m" in program else program[0]
    plain = re.sub(r"[^a-z0-9]+", "-", stem.lower())[:STEM_CHARACTERS].strip("-")
    return plain or "program"
