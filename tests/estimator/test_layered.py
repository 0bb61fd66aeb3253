import os

from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.estimator.layered import TOP_MIN, Draft, Layered

EXAMPLES = 300 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 25
CHANGES = st.lists(st.dictionaries(st.integers(0, 400), st.integers(), max_size=TOP_MIN + 20), max_size=8)


@settings(max_examples=EXAMPLES)
@given(CHANGES)
def test_every_version_is_what_a_plain_dictionary_would_be_and_stays_so(changes: list[dict[int, int]]) -> None:
    plain: dict[int, int] = {}
    versions = [(Layered[int, int](), dict(plain))]
    for each in changes:
        draft = Draft(versions[-1][0])
        for key, value in each.items():
            draft.put(key, value)
            assert draft.get(key) == value
            plain.pop(key, None)
            plain[key] = value
        versions.append((draft.done(), dict(plain)))
    for layered, expected in versions:
        assert layered.flat() == expected == dict(layered) and list(layered) == list(expected)
        assert len(layered) == len(expected)
        assert all(layered.get(key) == expected.get(key) for key in range(401))
