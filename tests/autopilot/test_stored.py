"""A question comes back from the database as it was, without secrets, and has the same decision."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gavel.autopilot.decision import decide, verify
from gavel.autopilot.digest import digest
from gavel.autopilot.features import COUNT
from gavel.autopilot.learning import Epoch, Experience
from gavel.autopilot.stored import pack, unpack
from gavel.errors import StoreUnavailable
from tests.autopilot.test_decision import a_question
from tests.autopilot.test_rollout import RUNNER


def an_experience() -> Experience:
    epoch = Epoch(
        in_force="fifo",
        real=0.1 + 0.2,
        predicted={"fifo": 1 / 3, "shortest_job_first": 0.5},
        replayed={"fifo": 0.25, "shortest_job_first": 0.5},
        whole={"fifo": 0.25, "shortest_job_first": 0.5},
        features=np.linspace(0, 1 / 3, COUNT),
        ln_rate=1 / 7,
    )
    return Experience().after(epoch, "fifo")


def test_a_question_that_was_stored_has_the_same_digest_and_the_same_decision() -> None:
    """What is decided on is what is stored: the question is packed, read back, and only then decided."""
    asked = unpack(pack(a_question(experience=an_experience(), switched_at_s=(-1 / 3,))))
    again = unpack(pack(asked))
    assert digest(again) == digest(asked) and pack(again) == pack(asked)
    assert verify(decide(asked, RUNNER), again, RUNNER) == ()


def test_what_the_question_was_made_of_decides_alike() -> None:
    question = a_question(experience=an_experience())
    stored = decide(unpack(pack(question)), RUNNER)
    assert replace(stored, inputs_digest="") == replace(decide(question, RUNNER), inputs_digest="")


def test_no_secret_is_stored() -> None:
    question = a_question()
    arrival = question.history[0]
    spec = replace(
        arrival.job.spec, argv=("train", "--key=hush"), env={"TOKEN": "hush"}, setup="hush", labels={"a": "hush"}
    )
    history = (replace(arrival, job=replace(arrival.job, spec=spec)), *question.history[1:])
    hidden = question.scenario.settings.model_copy(update={"smtp_password": "hush", "smtp_user": "hush"})
    scenario = replace(question.scenario, settings=hidden)
    again = unpack(pack(replace(question, history=history, scenario=scenario)))
    assert "hush" not in repr(again) and again.scenario.settings.policy == question.scenario.settings.policy


def test_the_folder_of_own_policies_is_kept(tmp_path: Path) -> None:
    question = a_question()
    settings = question.scenario.settings.model_copy(update={"policy_dir": tmp_path})
    again = unpack(pack(replace(question, scenario=replace(question.scenario, settings=settings))))
    assert again.scenario.settings.policy_dir == tmp_path


@pytest.mark.parametrize("body", [b"", b"nonsense", pack(a_question())[:-9]])
def test_a_damaged_question_is_reported(body: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="a question of the autopilot cannot be read"):
        unpack(body)
