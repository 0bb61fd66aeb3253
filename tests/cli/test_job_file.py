"""Job files and `#GAVEL` lines: they say what options say, and a mistake is named with line and column."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from api.schemas import JobSubmit
from api.views.jobs_and_rounds import job_view
from gavel.cli import app
from gavel.cli.job_file import FIELDS, job_file_of, read_job_file
from gavel.cli.show import instant
from gavel.mechanism.jobs.launches import launch_message
from gavel.ports import JobEvent
from gavel.types import Job, JobSpec
from gavel.types.occasions import Occasion
from scripts.job_file_schema import SCHEMA, schema
from tests.api.conftest import Service, service
from workloads.catalogue import CATALOGUE

__all__ = ["service"]

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"

Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def gavel(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command of a new user in an empty folder: exit code, output (of --json the answer), errors."""
    monkeypatch.chdir(tmp_path)
    name, _ = service.user()
    env = {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token(name), "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}

    def run(*arguments: str) -> tuple[int, Any, str]:
        done = CliRunner().invoke(app, arguments, env=env)
        is_answer = done.exit_code == 0 and "--json" in arguments
        return done.exit_code, json.loads(done.stdout) if is_answer else done.stdout, done.stderr

    return run


def write(text: str, name: str = "job.yaml") -> None:
    Path(name).write_text(text)


WHOLE = """
# everything that options say
argv: [train.py, --lr, "0.1"]
name: from-file
total_steps: 50
tier: silver
weight: 2.5
scale_factor: 2
env: {SEED: 7, DEBUG: yes}
labels: {team: vision}
throughputs: {fast: 12.5}
max_retries: 3
preemptible: false
cpu_cores: 2
"""


def test_a_file_says_what_options_say_and_options_go_before_it(gavel: Run, service: Service) -> None:
    write("print(1)", "train.py")
    write(WHOLE)
    code, job, errors = gavel("job", "submit", "-f", "job.yaml", "--tier", "gold", "--env", "SEED=8", "--json")
    assert code == 0, errors
    assert (job["argv"], job["name"], job["tier"]) == (["python", "train.py", "--lr", "0.1"], "from-file", "gold")
    assert (job["total_steps"], job["weight"], job["scale_factor"]) == (50, 2.5, 2)
    assert (job["preemptible"], job["cpu_cores"], job["max_retries"]) == (False, 2, 3)
    assert dict(service.store.job(job["id"]).spec.env) == {"SEED": "8", "DEBUG": "yes"}
    assert job["workdir"] == str(Path.cwd()) and job["code"] is not None


def test_the_file_of_a_job_submits_the_same_again(gavel: Run) -> None:
    """1 a job, 2 its file, 3 the folder changes, 4 the file submits the same code; values of env are not in it."""
    write("print(1)", "train.py")
    write(WHOLE)
    _, job, _ = gavel("job", "submit", "-f", "job.yaml", "--json")
    code, text, errors = gavel("job", "spec", job["id"])
    assert code == 0, errors
    assert "SEED" in text and "7" not in yaml.safe_load(text).get("env", {})
    assert set(yaml.safe_load(text)) <= set(FIELDS)
    write(text, "again.yaml")
    write("print(2)", "train.py")
    code, again, errors = gavel("job", "submit", "-f", "again.yaml", "--json")
    assert code == 0, errors
    same = [name for name in FIELDS if name != "env" and again[name] != job[name]]
    assert same == [] and again["id"] != job["id"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("total_steps: 5\nargv: [x]\n  teir: gold\n", "job.yaml:3:"),
        ("total_steps: 5\nteir: gold\n", "job.yaml:2:1: there is no field teir; did you mean tier?"),
        ("total_steps: 5\nqqqq: gold\n", "job.yaml:2:1: there is no field qqqq; there are kind, argv"),
        ("total_steps: 5\ntotal_steps: 6\n", "job.yaml:2:1: total_steps is there twice"),
        ("- 5\n", "job.yaml:1:1: a job file has fields"),
        ("", "job.yaml:1:1: a job file has fields"),
        ("argv: [x]\ntotal_steps: many\n", "job.yaml:2:1: "),
        ("argv: [x]\ntotal_steps: 5\n\ntier: platinum\n", "job.yaml:4:1: "),
    ],
)
def test_a_mistake_is_named_with_line_and_column(gavel: Run, text: str, message: str) -> None:
    write(text)
    code, _, errors = gavel("job", "submit", "-f", "job.yaml")
    assert code == 2 and message in errors and len(errors.splitlines()) == 1
    code, _, errors = gavel("job", "submit", "-f", "gone.yaml")
    assert code == 2 and "gone.yaml" in errors


def test_a_script_may_carry_options(gavel: Run) -> None:
    """1 those of its first comment lines count, 2 the command line goes before them, 3 a bad one names its line."""
    write(
        "#!/usr/bin/env python\n#GAVEL --steps 70 --name 'in-script'\n#GAVEL --tier silver\nx = 1\n#GAVEL --bad\n",
        "a.py",
    )
    code, job, errors = gavel("job", "submit", "--tier", "gold", "--json", "a.py", "--steps", "9")
    assert code == 0, errors
    assert (job["total_steps"], job["name"], job["tier"]) == (70, "in-script", "gold")
    assert job["argv"] == ["python", "a.py", "--steps", "9"]
    write("#GAVEL steps 70\n", "b.py")
    code, _, errors = gavel("job", "submit", "b.py")
    assert code == 2 and "b.py:1: steps is no option" in errors
    write("#GAVEL --name 'open\n", "c.py")
    code, _, errors = gavel("job", "submit", "c.py")
    assert code == 2 and "c.py:1: " in errors
    write("#!/usr/bin/env python\n\n#GAVEL --steps 5 --tierr gold\n", "d.py")
    code, _, errors = gavel("job", "submit", "d.py")
    assert code == 2 and errors == "gavel: d.py:3: there is no option --tierr; did you mean --tier?\n"


def test_the_published_schema_is_fresh_and_takes_what_is_taken() -> None:
    assert SCHEMA.read_text() == schema(), "run .venv/bin/python -m scripts.job_file_schema"
    described = json.loads(schema())
    assert tuple(described["properties"]) == FIELDS and described["additionalProperties"] is False
    jsonschema_rs.meta.validate(described)
    assert jsonschema_rs.is_valid(described, {"argv": ["x"], "total_steps": 5})
    assert not jsonschema_rs.is_valid(described, {"argv": ["x"], "total_steps": 5, "teir": "gold"})


def test_a_value_that_the_service_refuses_is_named_as_the_file_does(gavel: Run) -> None:
    write("argv: [x]\ntotal_steps: -4\n")
    code, _, printed = gavel("job", "submit", "-f", "job.yaml")
    assert code == 2 and "job.yaml:2:1: total_steps: " in printed and "body" not in printed


def test_a_job_without_steps_is_accepted_and_its_job_file_has_none(gavel: Run) -> None:
    write("argv: [x]\n")
    code, job, _ = gavel("job", "submit", "-f", "job.yaml", "--json")
    assert code == 0
    assert (job["total_steps"], job["submitted_steps"]) == (None, None)
    _, shown, _ = gavel("job", "show", job["id"])
    assert "0, steps unknown yet" in shown
    _, spec, _ = gavel("job", "spec", job["id"])
    assert "total_steps" not in spec


def test_a_formatter_s_blank_after_the_sign_changes_nothing(gavel: Run) -> None:
    write("# GAVEL --weight 3\n# GAVEL runs this script\nprint(1)\n", "train.py")
    code, job, _ = gavel("job", "submit", "--json", "train.py")
    assert (code, job["weight"]) == (0, 3.0)


def test_the_file_of_a_catalogue_s_job_submits_the_same_again(gavel: Run) -> None:
    _, job, _ = gavel("job", "submit", "--json", "--kind", min(CATALOGUE), "--steps", "5", "--notify", "none")
    _, text, _ = gavel("job", "spec", job["id"])
    write(text, "again.yaml")
    code, again, errors = gavel("job", "submit", "-f", "again.yaml", "--json")
    assert code == 0, errors
    assert [name for name in FIELDS if again[name] != job[name]] == [] and again["notify"] == []


TEXT = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
WORD = st.sampled_from(("a", "no", "1", "1e3", "null", "crop-2"))
SPECS = st.builds(
    JobSpec,
    kind=WORD.map("ann/{}".format),
    user=st.just("ann"),
    tier=st.sampled_from(("gold", "yes", "1")),
    argv=st.lists(TEXT, min_size=1, max_size=3).map(tuple),
    total_steps=st.none() | st.integers(1, 10**9),
    name=st.just("") | WORD,
    kind_args=st.lists(WORD, max_size=2).map(tuple),
    weight=st.floats(0.1, 100),
    deadline_at_s=st.none() | st.floats(1, 1e10),
    preemptible=st.booleans(),
    memory_bytes=st.integers(0, 1 << 50),
    priority=st.integers(-5, 5),
    labels=st.dictionaries(WORD, st.sampled_from(("yes", "1", "null", "a-b", "1e3")), max_size=3),
    throughput_steps_per_s=st.dictionaries(WORD, st.floats(0.01, 1e6), max_size=3),
    setup=st.just("") | TEXT.filter(str.strip),
    secrets=st.lists(st.sampled_from(("HF_TOKEN", "KEY")), unique=True).map(tuple),
    data=st.dictionaries(st.sampled_from(("vocabulary", "train")), st.just("https://there.example/a b"), max_size=2),
    notify=st.none() | st.lists(st.sampled_from((Occasion.END, Occasion.FAILURE)), unique=True).map(tuple),
)


@settings(max_examples=500 if IS_FULL else 15, deadline=None)
@given(spec=SPECS)
def test_every_specification_comes_back_from_its_job_file(spec: JobSpec) -> None:
    """A job -> its file -> the fields of a submit: the same, but for the environment, whose values are not shown."""
    view = job_view(Job(id="job-1", spec=spec), None, 0.0).model_dump(mode="json")
    with TemporaryDirectory() as folder:
        path = Path(folder, "job.yaml")
        path.write_text(job_file_of(view, now_s=0.0), encoding="utf-8")  # type: ignore[arg-type]
        fields = dict(read_job_file(path).fields)
    back = JobSubmit.model_validate(fields).model_dump(mode="json")
    default = JobSubmit(argv=["x"]).model_dump(mode="json")
    expected = {name: default[name] if view[name] in ("", None) else view[name] for name in FIELDS if name != "env"}
    assert {name: back[name] for name in expected} == expected


def test_a_job_is_submitted_again_with_what_options_change(gavel: Run, service: Service) -> None:
    _, old, _ = gavel("job", "submit", "--json", "--env", "SEED=1", "--label", "a=b", "--weight", "2", "true")
    code, new, _ = gavel(
        "job", "resubmit", old["id"], "--json", "--env", "MODE=x", "--steps", "9", "--max-retries", "2"
    )
    assert (code, new["resubmit_of"], new["weight"]) == (0, old["id"], 2.0)
    assert (new["total_steps"], new["max_retries"], new["labels"]) == (9, 2, {"a": "b"})
    assert dict(service.store.job(new["id"]).spec.env) == {"SEED": "1", "MODE": "x"}
    _, shown, _ = gavel("job", "show", new["id"])
    assert f"submitted again from {old['id']}" in " ".join(shown.split())


def test_an_elastic_job_is_submitted_by_a_file_or_by_options(gavel: Run) -> None:
    write("argv: [python, train.py]\ntotal_steps: 5\nsizes: [1, 2]\nglobal_batch: 64\n")
    _, of_file, _ = gavel("job", "submit", "--file", "job.yaml", "--json")
    _, of_options, _ = gavel(
        "job", "submit", "--sizes", "1,2", "--global-batch", "64", "--steps", "5", "--json", "python", "train.py"
    )
    _, of_range, _ = gavel(
        "job", "submit", "--sizes", "1-3", "--global-batch", "64", "--steps", "5", "--json", "python", "train.py"
    )
    for job in (of_file, of_options, of_range):
        assert (job["sizes"], job["global_batch"], job["scale_factor"]) == ([1, 2], 64, 1)
    _, again, _ = gavel("job", "submit", "--file", "job.yaml", "--sizes", "1,2,4", "--json")
    assert again["sizes"] == [1, 2, 4]
    write("argv: [python, train.py]\ntotal_steps: 5\nsizes: 1-4\nglobal_batch: 64\n")
    _, of_file_with_range, _ = gavel("job", "submit", "--file", "job.yaml", "--json")
    assert of_file_with_range["sizes"] == [1, 2, 4]


def test_execution_plans_are_submitted_by_a_file_or_by_options_and_are_the_same_again(gavel: Run) -> None:
    write(
        "argv: [python, train.py]\ntotal_steps: 5\nsizes: [1, 2]\nglobal_batch: 64\n"
        "plans:\n- data=1\n- {name: deep, parameters: {tensor: 2}, argv: [python, deep.py]}\n"
    )
    _, of_file, error = gavel("job", "submit", "--file", "job.yaml", "--json")
    assert [(plan["name"], plan["sizes"]) for plan in of_file["plans"]] == [("data=1", [1, 2]), ("deep", [2])], error
    _, of_options, _ = gavel(
        *("job", "submit", "--sizes", "1,2", "--global-batch", "64", "--steps", "5"),
        *("--plan", "data=1", "--plan", "tensor=2,pipeline=1", "--json", "python", "train.py"),
    )
    assert [plan["parameters"] for plan in of_options["plans"]] == [{"data": 1}, {"tensor": 2, "pipeline": 1}]
    for job in (of_file, of_options):
        _, text, _ = gavel("job", "spec", job["id"])
        write(text)
        code, again, error = gavel("job", "submit", "--file", "job.yaml", "--json")
        assert code == 0, error
        names = ("plans", "kind", "sizes", "scale_factor", "argv")
        assert [again[name] for name in names] == [job[name] for name in names]
    _, shown, _ = gavel("job", "show", of_options["id"])
    assert "data=1 now, of data=1 at 1, 2; tensor=2,pipeline=1 at 2" in " ".join(shown.split())


def test_the_sizes_that_an_elastic_job_had_are_shown(gavel: Run, service: Service) -> None:
    """Without the gang that had the size of the one before it, and of a long history the last ones."""
    _, job, _ = gavel(
        "job", "submit", "--sizes", "1,2", "--global-batch", "64", "--steps", "5", "--json", "python", "train.py"
    )
    _, shown, _ = gavel("job", "show", job["id"])
    assert "1 now, of 1, 2" in shown and "sizes so far" not in shown
    for at_s, size in ((100.0, 1), (200.0, 1), (300.0, 2), *((400.0 + each, 1 + each % 2) for each in range(8))):
        message = launch_message([f"fast-{each}" for each in range(size)], 1, 0)
        events = (
            JobEvent(job_id=job["id"], at_s=at_s, kind="gang.launched", message=message),
            JobEvent(job_id=job["id"], at_s=at_s + 0.5, kind="gang.preempted", message="The lease ended."),
        )
        service.change(events=events)
        if at_s == 300.0:
            _, shown, _ = gavel("job", "show", job["id"])
            assert f"1 from {instant(100.0)}, 2 from {instant(300.0)}" in " ".join(shown.split())
    _, shown, _ = gavel("job", "show", job["id"])
    assert instant(300.0) not in shown and shown.count(" from ") == 8


def test_a_size_that_is_no_number_is_named(gavel: Run) -> None:
    code, _, errors = gavel("job", "submit", "--sizes", "1,two", "--global-batch", "64", "--steps", "5", "python", "x")
    assert code == 2 and "--sizes two: write numbers with commas between them" in errors
