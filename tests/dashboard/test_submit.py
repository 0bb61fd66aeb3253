"""The form that submits a job, in a real Chromium. Every test also fails on any console error (fixture `tab`)."""

import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from api.access.auth import SESSION_COOKIE, digest, new_token
from gavel.ports import Changes, JobFilter
from gavel.types import Job, Scope, User
from tests.builders import a_cluster
from tests.client.test_worktree import git, write
from tests.dashboard.conftest import Dashboard, Tab
from tests.dashboard.scene import TIERS
from tests.git_server import git_server
from tests.sessions import a_session

pytestmark = pytest.mark.browser

WORDS = "async (text) => (await import('/static/words.js')).words(text)"


@pytest.fixture
def form(dashboard: Dashboard, tab: Tab) -> Page:
    """The form as ann sees it, who may use the tiers gold and silver, on a cluster of two workers a type."""
    for tier in TIERS:
        dashboard.store.put_tier(tier, expected_version=None, by="test", now_s=time.time())
    dashboard.store.put_user(User(name="ann", tiers=("silver", "gold")), by="test", now_s=time.time())
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(cluster=a_cluster(fast=2, slow=2)))
    token = new_token()
    dashboard.store.add_token(digest(token), user="ann", scope=Scope.USER, now_s=time.time())
    session = a_session(dashboard.store, token)
    tab.page.context.add_cookies([{"name": SESSION_COOKIE, "value": session, "url": dashboard.url}])
    tab.page.goto("/submit")
    expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
    return tab.page


def submit(page: Page) -> None:
    page.get_by_role("button", name="Submit").click()


def only_job(dashboard: Dashboard) -> Job:
    (job,) = dashboard.store.jobs(JobFilter(), limit=9).jobs
    return job


def refusal_of(field: Locator) -> str:
    """Return the message of a refused field as a screen reader gets it: its first description."""
    expect(field).to_have_attribute("aria-invalid", "true")
    return field.page.locator(f"#{(field.get_attribute('aria-describedby') or '').split()[0]}").inner_text()


def test_a_kind_of_the_catalogue_is_submitted_with_what_was_filled_in(dashboard: Dashboard, form: Page) -> None:
    tiers = form.get_by_label("Tier").locator("option")
    assert tiers.all_text_contents() == ["silver", "gold"], "ann's own, her default first"
    form.get_by_label("Job kind", exact=True).select_option("rnn-b256")
    form.get_by_label("Steps", exact=True).fill("700")
    form.get_by_label("Accelerators").fill("2")
    form.get_by_label("Tier").select_option("gold")
    form.get_by_label("Name").fill("second")
    form.get_by_label("Priority").fill("-1")
    form.get_by_label("Deadline").fill("2030-05-06T07:08")
    form.get_by_label("Labels").fill("project=vision\nquery=a=b\n")
    submit(form)
    expect(form).to_have_url(re.compile("/jobs/"))
    job = only_job(dashboard)
    assert form.url.endswith(f"/jobs/{job.id}")
    expect(form.locator("#job-name")).to_have_text("second")
    spec = job.spec
    assert (spec.user, spec.kind, spec.total_steps, spec.scale_factor) == ("ann", "rnn-b256", 700, 2)
    assert (spec.tier, spec.priority, spec.labels) == ("gold", -1, {"project": "vision", "query": "a=b"})
    assert spec.deadline_at_s == form.evaluate("new Date(2030, 4, 6, 7, 8).getTime() / 1000")


def test_a_program_of_one_s_own_is_submitted_word_by_word(dashboard: Dashboard, form: Page) -> None:
    form.get_by_label("a program of my own").check()
    expect(form.get_by_label("Job kind", exact=True)).to_be_hidden()
    form.get_by_label("Program and arguments").fill("""./train --note "two words" 'it''s $HOME' a\\ b""")
    submit(form)
    expect(form.locator("#job-state")).to_have_text("QUEUED")
    spec = only_job(dashboard).spec
    assert spec.argv == ("./train", "--note", "two words", "its $HOME", "a b")
    assert (spec.tier, spec.priority, spec.deadline_at_s, spec.labels) == ("silver", 0, None, {})


def test_execution_plans_are_submitted_one_on_each_line(dashboard: Dashboard, form: Page) -> None:
    form.get_by_label("a program of my own").check()
    form.get_by_label("Program and arguments").fill("python train.py")
    form.get_by_label("Execution plans", exact=True).fill("tensor=1\n\n tensor=1,chunk=1 \n")
    submit(form)
    expect(form.locator("#job-state")).to_have_text("QUEUED")
    spec = only_job(dashboard).spec
    assert [plan.name for plan in spec.plans] == ["tensor=1", "tensor=1,chunk=1"]
    expect(form.locator("#facts")).to_contain_text("tensor=1 now, of tensor=1 (size 1); tensor=1,chunk=1 (size 1)")
    expect(form.locator("#explain-facts")).to_contain_text("the round chooses one for the type where it starts")
    expect(form.locator("#explain-facts")).to_contain_text("fast: tensor=1 not measured, tensor=1,chunk=1 not measured")


REFUSED = (
    ("Steps", "", "this is needed"),
    ("Steps", "0", "greater than or equal to 1"),
    ("Accelerators", "3", "at most 2 fit"),
    ("Priority", "5", "tier silver has at most 0"),
    ("Name", "Two Words", "String should match pattern"),
    ("Labels", "vision", "write key=value"),
)


def test_what_is_refused_is_said_beside_its_field(dashboard: Dashboard, tab: Tab, form: Page) -> None:
    for label, value, refusal in REFUSED:
        field = form.get_by_label(label, exact=True)
        right = field.input_value()
        field.fill(value)
        submit(form)
        expect(field).to_be_focused()
        assert refusal in refusal_of(field), (label, value)
        field.fill(right)
    tab.errors[:] = [text for text in tab.errors if "422" not in text]  # the refusals, as the browser says them
    submit(form)
    expect(form.locator("#job-state")).to_have_text("QUEUED")
    assert only_job(dashboard).spec.user == "ann"


@pytest.mark.full
def test_an_open_quote_and_a_missing_program_are_said_beside_the_program(form: Page) -> None:
    form.get_by_label("a program of my own").check()
    program = form.get_by_label("Program and arguments")
    program.fill("echo 'never")
    submit(form)
    assert refusal_of(program) == "a ' is not closed"
    program.fill("")
    submit(form)
    assert refusal_of(program) == "this is needed"


def overflow(page: Page) -> int:
    """How many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.full
@pytest.mark.parametrize("width", [1360, 390])
def test_code_of_a_git_repository_is_submitted_and_what_cannot_be_fetched_is_said_beside_its_field(
    dashboard: Dashboard, tab: Tab, form: Page, tmp_path: Path, width: int
) -> None:
    """1 each refusal stands beside its field, and the page keeps its width, 2 the job runs the commit of the tag."""
    form.set_viewport_size({"width": width, "height": 844})
    commit = repository(tmp_path)
    form.get_by_label("a program of my own").check()
    form.get_by_label("Program and arguments").fill("./train.py --rate 0.1")
    url, ref = form.get_by_label("Git repository"), form.get_by_label("Branch, tag or commit")
    ref.fill("v1")
    submit(form)
    assert refusal_of(url) == "name the repository that has it"
    hint, label = (form.locator(each).bounding_box() for each in ("#submit-argv-hint", "[for=submit-git_url]"))
    assert hint is not None and label is not None and label["y"] - (hint["y"] + hint["height"]) > 10
    with git_server(tmp_path / "served") as served:
        right = {"Git repository": served.url("repo.git"), "Branch, tag or commit": "v1", "Secrets": ""}
        for label, wrong, refusal in (
            ("Git repository", served.url("gone.git"), "not found"),
            ("Git repository", "https://ann:pass@git.example.org/x", "store them as secrets"),
            ("Branch, tag or commit", "v2", "has no branch or tag v2"),
            ("Secrets", "GIT_TOKEN", "gavel secret set GIT_TOKEN"),
        ):
            for each, value in (right | {label: wrong}).items():
                form.get_by_label(each, exact=True).fill(value)
            submit(form)
            field = form.get_by_label(label, exact=True)
            expect(field).to_be_focused()
            assert refusal in refusal_of(field) and overflow(form) == 0, (label, wrong)
        form.get_by_label("Secrets").fill("")
        served.delay.clear()
        submit(form)
        expect(form.locator("#submit-progress")).to_have_text("The service fetches the repository")
        served.delay.set()
        expect(form.locator("#job-state")).to_have_text("QUEUED")
    spec = only_job(dashboard).spec
    assert spec.code and (spec.code.commit, spec.code.git_url, spec.code.git_ref) == (
        commit,
        right["Git repository"],
        "v1",
    )
    assert spec.argv == ("python", "./train.py", "--rate", "0.1")
    tab.errors[:] = [text for text in tab.errors if "422" not in text]


def repository(folder: Path) -> str:
    """Make served/repo.git with a commit that has the tag v1; return the commit."""
    work = folder / "work"
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    write(work, train_py="print(1)")
    git(work, "add", ".")
    git(work, "commit", "-qm", "first")
    git(work, "tag", "v1")
    git(folder, "clone", "-q", "--bare", str(work), str(folder / "served" / "repo.git"))
    return git(work, "rev-parse", "main")


@pytest.mark.full
def test_a_second_try_after_a_lost_answer_makes_no_second_job(dashboard: Dashboard, tab: Tab, form: Page) -> None:
    form.route("**/v1/jobs", lambda route: (route.fetch(), route.abort()), times=1)
    submit(form)
    expect(form.locator("#submit-refusal")).to_have_text("The service does not answer")
    made = only_job(dashboard)
    submit(form)
    expect(form).to_have_url(re.compile(f"/jobs/{made.id}$"))
    assert only_job(dashboard).id == made.id
    tab.errors[:] = [text for text in tab.errors if "ERR_FAILED" not in text]


@pytest.mark.full
def test_words_are_parted_as_a_shell_would(form: Page) -> None:
    parted = {
        "python train.py  --rate 0.1": ["python", "train.py", "--rate", "0.1"],
        """a'b c'"d\\"e"\\ f ''""": ['ab cd"e f', ""],
        "line\nline\ttab ": ["line", "line", "tab"],
        "": [],
    }
    assert {text: form.evaluate(WORDS, text) for text in parted} == parted


def test_a_session_is_reserved_for_an_instant_of_the_browser_s_time_zone(dashboard: Dashboard, form: Page) -> None:
    form.get_by_label("a program of my own").check()
    form.get_by_label("Program and arguments").fill("python -m jupyterlab")
    form.get_by_label("Hours of an interactive session").fill("1.5")
    form.get_by_label("Session starts at").fill("2030-05-06T07:08")
    submit(form)
    expect(form).to_have_url(re.compile("/jobs/"))
    spec = only_job(dashboard).spec
    assert (spec.mode, spec.longest_s, spec.preemptible) == ("interactive", 5400.0, False)
    assert spec.reserved_at_s == form.evaluate("new Date(2030, 4, 6, 7, 8).getTime() / 1000")
    expect(form.locator("#facts")).to_contain_text("Reservation")
