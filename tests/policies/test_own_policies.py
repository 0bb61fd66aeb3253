"""Policies of the operator's own, added as docs/adding-a-policy.md says."""

import re
import time
from pathlib import Path

import pytest

from gavel.errors import InvalidRequest
from gavel.policies import registry
from gavel.policies.conformance import CHECKS, MeasuredPolicy, a_small_problem
from gavel.runner import SubprocessRunner

DOCUMENT = Path(__file__).parents[2] / "docs" / "adding-a-policy.md"
SPEC = "square_roots?time_limit_s=30"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The document's file in a folder, beside one that is not a policy."""
    code = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    (tmp_path / "square_roots.py").write_text(code[0])
    (tmp_path / "_notes.py").write_text("raise RuntimeError")
    return tmp_path


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.strip("_"))
def test_the_document_s_policy_passes_the_conformance_suite(folder: Path, check) -> None:  # noqa: ANN001
    policy = registry.load("square_roots", folder)
    assert isinstance(policy.name, str)
    check(policy)


def test_it_is_listed_with_formula_source_and_parameters_beside_the_others(folder: Path) -> None:
    infos = {info.name: info for info in registry.available(folder)}
    assert "sqrt" in infos["square_roots"].formula
    assert [each.name for each in infos["square_roots"].parameters] == ["time_limit_s", "agnostic"]
    assert infos.keys() - {"square_roots"} == {info.name for info in registry.available()}
    assert registry.canonical("square_roots?time_limit_s=60&agnostic=true", folder) == "square_roots?agnostic=true"


def test_it_does_better_by_its_own_measure_than_the_other_policies(folder: Path) -> None:
    problem, own = a_small_problem(), registry.load("square_roots", folder)
    ours = measured(own).objective(problem, own.allocate(problem))
    for info in registry.available():
        theirs = measured(own).objective(problem, registry.load(info.name).allocate(problem))
        assert ours[0] >= theirs[0] - 1e-6, info.name


def measured(policy: object) -> MeasuredPolicy:
    assert hasattr(policy, "objective")
    return policy  # type: ignore[return-value]


@pytest.mark.full
def test_the_service_s_solver_process_finds_it(folder: Path) -> None:
    runner = SubprocessRunner(4 << 30, policy_dir=folder)
    try:
        gives_up_at_s = time.monotonic() + 60
        while not runner.warm():
            assert time.monotonic() < gives_up_at_s, "the solver's process did not get ready"
        assert runner.allocate(SPEC, a_small_problem(), time_limit_s=30.0).policy == "square_roots"
        with pytest.raises(InvalidRequest, match=r"there is no 'cubes'; choose one of .*square_roots"):
            runner.allocate("cubes", a_small_problem(), time_limit_s=30.0)
    finally:
        runner.close()


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("x = 1", "needs POLICY"),
        ("import no_such_module_anywhere", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("from gavel.policies.fifo import POLICY", "there is a policy 'fifo' already"),
        ("class POLICY: name = formula = source = 'mine'", "needs POLICY, a dataclass"),
    ],
)
def test_a_file_that_is_no_policy_is_named_with_what_is_wrong(tmp_path: Path, code: str, complaint: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(InvalidRequest, match=complaint):
        registry.available(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"policy_dir: .*nowhere is no folder"):
        registry.load("fifo", tmp_path / "nowhere")
