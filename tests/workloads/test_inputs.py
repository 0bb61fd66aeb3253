"""`job.data`: where the inputs are that were declared at the submit, inside Gavel and by hand."""

from tests.workloads.gang import Gang

SHOW = """
from gavel_runtime import job

print(job.data["train"], sorted(job.data))
print(job.data["test"])
"""


def test_a_program_has_the_place_of_each_input_and_is_told_of_one_that_was_not_declared(gang: Gang) -> None:
    codes, (output,) = gang.start(SHOW, GAVEL_DATA_TRAIN="/sets/train", GAVEL_DATA_MY_WORDS="/words").finish()
    assert codes == [1] and "/sets/train ['my_words', 'train']\n" in output
    assert "there is no input test (there is my_words, train)" in output
    assert "--data test=PATH_OR_URL, or set GAVEL_DATA_TEST to run by hand" in output
