"""docs/policies.md speaks of every policy as the code does, and its pictures can be made again."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from gavel.policies import registry
from gavel.policies.conformance import PROMISES
from gavel.policies.tiers.objectives import OBJECTIVES
from scripts.policy_pictures import ALSO, PICTURES, draw

DOCUMENT = Path(__file__).parents[2] / "docs" / "policies.md"
TEXT = DOCUMENT.read_text()


@pytest.mark.parametrize("info", registry.available(), ids=lambda info: info.name)
def test_every_policy_is_documented_with_its_formula_source_parameters_and_picture(info: registry.PolicyInfo) -> None:
    section = TEXT.split(f"### `{info.name}`")[1].split("\n##")[0]
    assert info.choose_when in section and info.formula in section
    assert info.source in section
    for parameter in info.parameters:
        if parameter.name not in ("time_limit_s", "agnostic", "solver"):  # explained once for all
            assert f"`{parameter.name}" in section, parameter.name
    assert f"(pictures/policies/{info.name}.svg)" in section
    assert (PICTURES / f"{info.name}.svg").exists()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_of_a_tier_has_its_picture_and_a_sentence_that_says_when_to_choose_it(objective: str) -> None:
    tiers = (DOCUMENT.parent / "tiers.md").read_text()
    section = tiers.split("## When to choose which objective")[1].split("\n## ")[0]
    sentence = OBJECTIVES[objective].choose_when
    assert sentence.startswith("Choose this when ") and sentence in " ".join(section.split())
    assert sentence in registry.TIER_OBJECTIVES[objective]
    assert f"(pictures/policies/objective_{objective}.svg)" in section
    assert (PICTURES / f"objective_{objective}.svg").exists()


@pytest.mark.parametrize("info", registry.available(), ids=lambda info: info.name)
def test_every_promise_is_in_the_document(info: registry.PolicyInfo) -> None:
    promises = registry.load(info.name).promises  # type: ignore[attr-defined]
    section = TEXT.split(f"### `{info.name}`")[1].split("\n##")[0]
    assert promises <= PROMISES.keys()
    line = next(line for line in section.splitlines() if line.startswith("Promises:"))
    assert {name for name in PROMISES if f"`{name}`" in line} == promises


def test_the_pictures_are_drawn_anew_one_for_each_policy(tmp_path: Path) -> None:
    files = draw(tmp_path)
    policies, objectives = {info.name for info in registry.available()}, set(OBJECTIVES)
    assert {file.stem for file in files} == policies | ALSO.keys() | {f"objective_{name}" for name in objectives}
    for file in files:
        picture = ElementTree.fromstring(file.read_text())
        bars = [each for each in picture.iter("{http://www.w3.org/2000/svg}rect") if each.get("class") != "time"]
        assert len(bars) >= 6, file.name
