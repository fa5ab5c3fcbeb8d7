"""The agreement of submissions, and the ranks of cases."""

import pytest
from rows import group

from gpubench.studies.agreement import agreements
from gpubench.studies.ranked_cases import ranks_of


def measured(middle, device, session, **changes):
    """Six trials within half a per cent of a median."""
    times = [middle * (1 + part / 1000) for part in (-5, -3, -1, 1, 3, 5)]
    return group(times, device_hash=device, session=session, **changes)


def texts(*groups, files=None):
    """Return the agreement of each group as text; by default every group is in another file."""
    names = dict(zip(map(id, groups), files or range(len(groups)), strict=True))
    return [str(agreement or "") for agreement in agreements(groups, lambda member: {names[id(member)]})]


def test_submissions_agree_if_the_interval_of_their_ratio_is_within_the_minimum_effect():
    groups = [measured(100, "a", "1"), measured(101, "b", "2"), measured(104, "c", "3")]
    assert texts(*groups) == ["2 of 3 agree, within 1.0%", "2 of 3 agree, within 1.0%", "1 of 3 agrees"]
    assert texts(*groups[:2]) == ["2 agree, within 1.0%"] * 2
    assert texts(groups[0]) == ["one"]


def test_noisy_submissions_do_not_agree():
    noisy = [60.0, 80.0, 95.0, 105.0, 130.0, 160.0]
    for factor in (1.0, 1.57):  # medians that are equal by luck, and far apart
        others = [one * factor for one in noisy]
        pair = group(noisy, device_hash="a", session="1"), group(others, device_hash="b", session="2")
        assert texts(*pair) == ["1 of 2 agrees"] * 2


@pytest.mark.parametrize(
    ("device", "session", "file"), [("a", "2", 1), ("b", "1", 1), ("b", "2", 0)], ids=["device", "session", "file"]
)
def test_rows_of_a_case_that_share_something_are_one_submission(device, session, file):
    groups = [measured(100, "a", "1"), measured(101, device, session)]
    assert texts(*groups, files=[0, file]) == ["one"] * 2
    between = group([100.5], device_hash="a", session="4")
    assert texts(measured(100, "a", "1"), measured(101, "b", "4"), between)[:2] == ["one"] * 2


def test_rows_of_another_case_do_not_join_two_submissions():
    bridge = measured(8, "a", "2", suite="made-up")
    assert texts(measured(100, "a", "1"), measured(101, "b", "2"), bridge)[:2] == ["2 agree, within 1.0%"] * 2


@pytest.mark.parametrize(
    "changes",
    [{"params": "epochs=2"}, {"batch_size": 128}, {"torch": "2.6.0"}, {"precision": "bf16"}, {"suite_digest": "d2"}],
)
def test_another_case_does_not_count(changes):
    assert texts(measured(100, "a", "1"), measured(100, "b", "2", **changes)) == ["one"] * 2


def test_few_trials_and_imported_figures_are_no_submission():
    few = group([100.0], device_hash="b", session="2")
    figure = group([100.0], source="github.com/a/b", device_hash="", session="")
    assert texts(measured(100, "a", "1"), few, figure) == ["one", "too few trials", ""]


def test_a_combined_group_counts_the_largest_agreement():
    parts = tuple(measured(value, str(value), str(value)) for value in (100, 101, 102, 150))
    whole = group([100, 101, 102, 150], device_hash="", session="", parts=parts)
    files = {id(part): at for at, part in enumerate(parts)}
    (agreement,) = agreements([whole], lambda part: {files[id(part)]})
    assert str(agreement) == "3 of 4 agree, within 2.0%"


@pytest.mark.parametrize(
    ("seconds", "ranks"),
    [([], []), ([50, 50], [1, 1]), ([100, 102, 102.5, 110], [1, 1, 3, 4]), ([10, 11, 11.1, 12], [1, 2, 2, 4])],
)
def test_those_within_the_minimum_effect_of_the_first_share_its_rank(seconds, ranks):
    assert ranks_of(seconds) == ranks
