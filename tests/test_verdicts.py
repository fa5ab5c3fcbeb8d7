"""A pair of groups to a comparison: which ratio, which notes, why no verdict, and the advice."""

from dataclasses import replace

import pytest
from facts import lacking
from rows import group

from gpubench.analysis.stats import Ratio
from gpubench.analysis.verdicts import Comparison, comparison, judged, with_losses

SIX = (100.0, 100.1, 100.2, 99.9, 99.8, 100.05)
FAST = tuple(seconds / 2 for seconds in SIX)


def made(axis="precision", seconds=FAST, other_seconds=SIX, *, other=None, **changes):
    """The comparison of a group that has `changes` with one that has not, or has `other`."""
    return comparison(axis, group(seconds, **changes), group(other_seconds, **(other or {})))


def test_names_and_notes_follow_the_axis():
    c = made(precision="fp16")
    assert (c.axis, c.subject_name, c.other_name, c.ratio.value) == ("precision", "fp16", "fp32", pytest.approx(0.5))
    assert (c.verdict, c.notes, c.ratio.specimens) == ("", (), 0)
    assert (c.subject.precision, c.other.precision) == ("fp16", "fp32")
    c = made("card", card="NVIDIA H100", device_hash="bbbb", label="mine")
    assert (c.subject_name, c.other_name) == ("mine", "Ti")
    c = made("torch", torch="2.1.0", cuda="11.8", cudnn="8700", threads=8)
    assert (c.verdict, c.notes) == ("", ("differs in cuda, cudnn",))
    c = made("torch", torch="2.1.0", cuda="11.8", threads=4)
    assert (c.verdict, c.notes) == ("torch + stack", ("differs in cuda, threads",))
    changes = {"batch_policy": "max", "batch_size": 128}
    c = made("torch", torch="2.1.0", other={"batch_policy": "max"}, **changes)
    assert (c.verdict, c.notes) == ("", ())


@pytest.mark.parametrize(
    ("changes", "other", "verdict", "notes"),
    [
        ({"power_cap": "9 W"}, {}, "precision + stack", ("differs in power_limit_watts",)),
        ({"threads": 4, "cpu": "x", "driver": "1"}, {}, "precision + stack",
         ("differs in threads", "another cpu", "another driver")),
        ({"torch": "2.1.0"}, {}, "precision + stack", ("differs in torch",)),
        ({"suite_digest": "d2"}, {}, "precision + code", ("the timed code differs",)),
        ({"cpu": "Arm"}, {}, "", ("another cpu",)),
        ({"driver": "1"}, {}, "", ("another driver",)),
        ({"memory_format": "channels_last"}, {"memory_format": "contiguous"}, "",
         ("layout channels_last / contiguous",)),
        ({"memory_format": "channels_last"}, {}, "", ()),
        ({"clocks_policy": "offset"}, {}, "precision + stack", ("differs in clocks_policy",)),
        ({"switches": "CUDA_LAUNCH_BLOCKING=1"}, {}, "precision + stack", ("differs in switches",)),
        ({"batch_policy": "max"}, {"batch_policy": "max"}, "", ("same batch",)),
        ({"batch_policy": "max", "batch_size": 160}, {"batch_policy": "max"}, "", ("batch 2.5 x",)),
        ({"batch_policy": "max", "batch_size": None}, {"batch_policy": "max"}, "", ()),
        ({"batch_policy": "max"}, {"batch_policy": "max", "batch_size": None}, "", ()),
    ],
)  # fmt: skip
def test_what_is_said_of_a_pair(changes, other, verdict, notes):
    c = made(precision="fp16", other=other, **changes)
    assert (c.verdict, c.notes) == (verdict, notes)


@pytest.mark.parametrize("axis", ["gpubench", "commit", "suite_version", "suite_digest"])
def test_where_versions_of_the_code_are_compared_its_edits_are_no_note(axis):
    c = made(axis, **{"suite_digest": "d2", axis: "2"})
    assert (c.verdict, c.notes, c.is_unlike) == ("", (), False)


@pytest.mark.parametrize("axis", ["cpu", "driver"])
def test_what_is_compared_is_no_note(axis):
    assert made(axis, **{axis: "another"}).notes == ()


def test_measured_against_projected_is_not_judged_and_until_costs_half_as_much_again():
    sampled = {"mode": "sampled", "measured": "projected"}
    c = made("mode", **sampled)
    assert (c.verdict, c.notes) == ("not judged", ("projected / measured",))
    assert made("mode", mode="quick").verdict == ""
    assert made("mode", mode="sampled").verdict == ""
    assert made(precision="fp16", other=sampled, **sampled).verdict == ""
    plain, ours, theirs = (
        made(precision="fp16", other={"until": b}, until=a) for a, b in ((0, 0), (0.01, 0), (0, 0.01))
    )
    assert plain.ratio.p == pytest.approx(2 / 924)  # of 924 orders of six and six
    assert ours.ratio.p == theirs.ratio.p == pytest.approx(3 / 924)


@pytest.mark.parametrize(("axis", "changes", "specimens"), [
    ("precision", {"precision": "fp16"}, 0), ("precision", {"precision": "fp16", "session": "s2"}, 1),
    ("card", {"card": "H100", "device_hash": "bbbb"}, 1), ("card", {"card": "H100"}, 0),
    ("device_hash", {"device_hash": "bbbb"}, 0), ("device", {"device": "cuda:1", "device_hash": "bbbb"}, 0),
    ("device_hash", {"device_hash": "bbbb", "session": "s2"}, 1),
    ("card", {"card": "H100", "device_hash": "", "device": "cuda:1"}, 1),
    ("card", {"card": "H100", "source": "somebody"}, 1),
])  # fmt: skip
def test_when_each_side_is_but_one_specimen(axis, changes, specimens):
    c = made(axis, **changes)
    assert c.ratio.specimens == specimens
    assert ("one specimen (physical device) each" in c.notes) == bool(specimens)


def several(seconds, unit="device_hash", *, names="abc", **changes):
    """A group of three specimens, or of three sessions of one device, with a trial or more each."""
    units = ({"session": f"of {name}", unit: name} for name in names)
    parts = tuple(group(own, **{**at, **changes}) for at, own in zip(units, seconds, strict=True))
    whole = {unit: "", "session": "", **changes}
    return group([part.median for part in parts], parts=parts, **whole)


THREE = ((90.0, 110.0), (101.0, 103.0), (98.0, 110.0))
"""Medians of 100, 102 and 104."""


def test_specimens_and_sessions_are_counted_and_paired():
    ours, theirs = several(THREE, card="H100"), several(((50.0, 50.5), (51.0, 51.5), (52.0, 52.5)), names="xyz")
    c = comparison("card", ours, theirs)
    assert (c.ratio.specimens, c.notes) == (3, ("3 specimens each",))
    assert c.ratio.value == pytest.approx(102 / 51.25)
    cards_of_one_host = several(THREE, card="H100", session="s1")
    c = comparison("card", cards_of_one_host, theirs)
    assert (c.ratio.specimens, c.notes) == (1, ("1 and 3 machines",))
    c = comparison("card", cards_of_one_host, several(THREE, session="s2"))
    assert (c.ratio.specimens, c.notes, c.ratio.low < 0.9) == (1, ("one machine each",), True)
    c = comparison("card", ours, group(SIX))
    assert (c.ratio.specimens, c.notes) == (1, ("3 and 1 specimens",))
    assert comparison("card", group(SIX), ours).notes == ("1 and 3 specimens",)
    ours, theirs = (
        several(THREE, "session", device_hash=device, torch=torch) for device, torch in (("aa", "3"), ("aa", "2"))
    )
    c = comparison("torch", ours, theirs)
    assert (c.ratio.specimens, c.notes) == (3, ("3 sessions each",))
    other = several(THREE, "session", device_hash="bb", card="H100")
    c = comparison("card", other, ours)
    assert c.ratio.specimens == 1
    assert c.notes[0] == "3 sessions each"
    # Each is exactly twice as fast in fp16, so that their own spread is in no interval.
    half = tuple(tuple(seconds / 2 for seconds in own) for own in THREE)
    c = comparison("precision", several(half, precision="fp16"), several(THREE))
    assert (c.ratio.value, c.ratio.low, c.ratio.high) == pytest.approx((0.5, 0.5, 0.5))
    unpaired = comparison("precision", several(half, precision="fp16", names="xyz"), several(THREE))
    assert unpaired.ratio.low < 0.49
    two = comparison("precision", several(half, precision="fp16", names="abz"), several(THREE))
    assert two.ratio.low < 0.49


def verdicts(*ratios, subject=(), other=()):
    """What is made of six trials a side with these ratios."""
    pair = group(subject or SIX, precision="fp16"), group(other or SIX)
    return [(c.verdict, c.notes) for c in judged([Comparison("precision", *pair, "fp16", "fp32", r) for r in ratios])]


FASTER = Ratio(0.5, 0.49, 0.51, 0.02, (0.49, 0.51), (0.49, 0.51))


def test_p_is_adjusted_over_all_that_are_shown_and_may_decide():
    assert verdicts(FASTER) == [("faster", ())]
    both = verdicts(FASTER, Ratio(0.5, 0.49, 0.51, 0.03, (0.49, 0.51), (0.49, 0.51)))
    assert [verdict for verdict, _ in both] == ["faster", "faster"]
    three = verdicts(FASTER, *[Ratio(0.5, 0.49, 0.51, 0.04, (0.49, 0.51), (0.49, 0.51))] * 2)
    assert [verdict for verdict, _ in three] == ["undecided", "undecided", "undecided"]
    chosen = [Comparison("card", group(FAST), group(SIX), "a", "b", FASTER, choices=n) for n in (4, 6)]
    assert [judged([c])[0].verdict for c in chosen] == ["faster", "undecided"]  # p: 4% and 6%
    settled = [Comparison("card", group(), group(), "a", "b", FASTER, "not judged", ("why",))] * 3
    alone = [Comparison("card", group(), group(), "a", "b", Ratio(0.5, None, None, None))]
    (judgement, *rest) = judged(
        [Comparison("precision", group(FAST, precision="fp16"), group(SIX), "fp16", "fp32", FASTER), *settled, *alone]
    )
    assert (judgement.verdict, judgement.notes) == ("faster", ())
    assert [(c.verdict, c.notes) for c in rest] == [("not judged", ("why",))] * 3 + [("one run", ())]
    for sides in ((SIX, SIX[:5]), (SIX[:5], SIX)):
        ((verdict, _),) = verdicts(FASTER, subject=sides[0], other=sides[1])
        assert verdict == "few trials"
    assert verdicts(FASTER, subject=SIX[:1]) == [("one run", ())]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict", "notes"),
    [
        ({"timed_out": 2}, {}, "incomplete", "fp16: 2 of 8 trials have no result"),
        ({}, {"timed_out": 1}, "incomplete", "fp32: 1 of 7 trials have no result"),
        ({"out_of_memory": 3}, {}, "faster", "fp16: 3 of 9 trials have no result"),
        (
            {"failed": 3},
            {"failed": 1},
            "faster",
            "fp16: 3 of 9 trials have no result; fp32: 1 of 7 trials have no result",
        ),
    ],
)
def test_a_time_limit_that_cut_trials_off_leaves_no_verdict(ours, theirs, verdict, notes):
    pair = group(FAST, precision="fp16", lost=ours), group(SIX, lost=theirs)
    c = with_losses(Comparison("precision", *pair, "fp16", "fp32", FASTER, notes=("before",)), ["timed_out"])
    (c,) = judged([c])
    assert (c.verdict, "; ".join(c.notes)) == (verdict, f"before; {notes}")


def advice(ratio, subject, other, axis="precision"):
    """The last note on a comparison that the figures leave open."""
    (c,) = judged([Comparison(axis, subject, other, "a", "b", ratio)])
    assert c.verdict in {"undecided", "few trials", "one specimen", "few specimens"}
    return c.notes[-1] if c.notes else ""


OPEN = Ratio(0.97, 0.9, 1.05, 0.5, (0.9, 1.05), (0.9, 1.05))


def test_how_many_trials_would_decide():
    few = group(SIX[:3], precision="fp16"), group(SIX[:3])
    assert lacking(advice(OPEN, *few), "about 6 trials") == []
    # More than there are, for they did not decide.
    many = group(SIX * 3, precision="fp16"), group(SIX * 2)
    assert lacking(advice(OPEN, *many), "about 13 trials") == []
    wild = group((50.0, 100, 200, 60, 150, 90), precision="fp16"), group(SIX)
    assert lacking(advice(OPEN, *wild), "over 50 trials") == []
    full = group(SIX * 8 + (100.0,), precision="fp16"), group(SIX * 8 + (100.0,))
    assert lacking(advice(OPEN, *full), "about 50 trials") == []
    assert advice(replace(OPEN, specimens=1), *few) == "", "that takes other cards or other days"
