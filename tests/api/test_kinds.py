"""A job's kind is its program: what shares measurements, and what does not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.fields import KIND_PATTERN
from api.submission.kinds import SIZE_ARGUMENTS, kind_of
from gavel.estimator.kinds import family_of
from tests.api.conftest import Service

TRAIN = ("python", "train.py")
HERE = "/home/ann/project"


def kind(*arguments: str, more: tuple[str, ...] = (), workdir: str | None = HERE) -> str:
    return kind_of("ann", (*TRAIN, *arguments), workdir, more)[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("--lr", "0.1"), ("--lr", "0.01", "--seed", "7")),
        (("--lr", "0.1"), ("--lr=1e-3", "--out", "/tmp/x")),
        (("--batch-size", "64"), ("--batch_size=64",)),
        (("--lr", "-0.5", "--layers", "4"), ("--layers", "4")),
        (("train.batch_size=64",), ("--batch-size", "64")),
        (("--verbose", "--layers", "4"), ("--layers", "4", "--verbose")),
    ],
)
def test_jobs_that_differ_in_nothing_that_changes_speed_are_one_kind(
    one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    assert kind(*one) == kind(*other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("--batch-size", "64"), ("--batch-size", "128")),
        (("--model", "resnet18"), ("--model", "resnet50")),
        (("--fp16",), ()),
        (("small.yaml",), ("large.yaml",)),
        (("model.hidden_size=128",), ("model.hidden_size=256",)),
        (("--layers", "4"), ("--depth", "4")),
    ],
)
def test_jobs_that_differ_in_what_changes_speed_are_two(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert kind(*one) != kind(*other)


def test_another_folder_script_or_user_is_another_kind() -> None:
    kinds = {
        kind(),
        kind(workdir="/elsewhere"),
        kind_of("bob", TRAIN, HERE)[0],
        kind_of("ann", ("python", "-m", "train"), HERE)[0],
        kind_of("ann", ("python", "other.py"), HERE)[0],
        kind_of("ann", ("bash", "-c", "python train.py"), HERE)[0],
        kind_of("ann", ("bash", "-c", "python train.py --model a"), HERE)[0],
    }
    assert len(kinds) == 7


def test_arguments_that_the_user_names_belong_to_the_kind() -> None:
    assert kind("--crop", "224") == kind("--crop", "448")
    assert kind("--crop", "224", more=("crop",)) != kind("--crop", "448", more=("--crop",))


def test_batch_sizes_are_one_family_of_which_the_estimator_knows_the_sizes() -> None:
    small, large = kind("--batch-size", "64", "--lr", "1"), kind("--batch-size", "256")
    assert small.endswith("-b64") and large.endswith("-b256")
    assert family_of(small) == family_of(large)
    assert family_of(kind()) == kind(), "no digit at the end that would be taken for a size"


def test_what_a_kind_was_made_of_is_said() -> None:
    assert kind_of("ann", (*TRAIN, "a.yaml", "--lr", "1", "--layers=2", "--amp"), HERE)[1] == (
        "python train.py a.yaml with amp, layers=2"
    )


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@given(
    st.lists(words | st.sampled_from(["--lr", "-c", "-m", "x.py", "--", "=", *sorted(SIZE_ARGUMENTS)[:3]]), min_size=1)
)
def test_whatever_the_arguments_are_the_kind_is_a_proper_name(argv: list[str]) -> None:
    name, made_of = kind_of("ann", argv, None)
    assert re.fullmatch(KIND_PATTERN, name)
    assert made_of
    assert kind_of("ann", argv, None)[0] == name


def test_ten_jobs_of_a_sweep_share_one_kind_and_a_stated_kind_goes_before(service: Service) -> None:
    name, ann = service.user()
    made = []
    for index in range(10):
        argv = [*TRAIN, "--lr", str(0.1 / (index + 1)), "--seed", str(index), "--batch-size", "64"]
        made.append(ann.post("/v1/jobs", json={"argv": argv, "name": f"run-{index}", "workdir": HERE}).json())
    assert len({job["kind"] for job in made}) == 1
    assert made[0]["kind_from"] == "python train.py with batch-size=64"
    stated = ann.post("/v1/jobs", json={"argv": [*TRAIN], "kind": f"{name}/mine", "workdir": HERE}).json()
    assert (stated["kind"], stated["kind_from"]) == (f"{name}/mine", "")


def test_the_jobs_of_an_array_over_sizes_are_kinds_of_their_own(service: Service) -> None:
    _, ann = service.user()
    job = {"argv": [*TRAIN, "--lr", "{LR}", "--batch-size", "{SIZE}"], "workdir": HERE}
    parameters = {"LR": ["1", "2"], "SIZE": ["16", "32"]}
    made = ann.post("/v1/jobs/array", json={"job": job, "parameters": parameters}).json()["items"]
    assert [each["kind"].rpartition("-")[2] for each in made] == ["b16", "b32", "b16", "b32"]
    assert len({each["kind"] for each in made}) == 2
