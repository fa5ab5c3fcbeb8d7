"""What is compared with what, what is not, and that everything left out is named."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from facts import lacking
from rows import row, rows

from gpubench.analysis.compare import Question, compare
from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.studies.answer import answer

RESULTS = Path(__file__).parents[1] / "results"
FAST = [100.0, 100.1, 100.2, 99.9, 99.8, 100.05]
SLOW = [value * 1.3 for value in FAST]
OTHER = {"card": "NVIDIA GeForce GTX 1080 Ti", "device": "cuda:1", "device_hash": "bbbb"}


def result_of(tmp_path, *groups, **options):
    path = tmp_path / "rows.csv"
    path.unlink(missing_ok=True)
    for workload in groups:
        records.append(path, workload)
    return compare([path], Question(**options))


def left_out(result):
    """What is in no group, and what found no partner in one."""
    return [*result.left_out, *(line for workload in result.workloads for line in workload.left_out)]


def only(result):
    assert len(result.comparisons) == 1, result
    return result.comparisons[0]


def test_two_cards_and_two_precisions_in_one_session(tmp_path):
    c = only(result_of(tmp_path, rows(FAST), rows(SLOW, **OTHER)))
    assert (c.subject_name, c.other_name, c.verdict) == ("RTX 2080 Ti", "GTX 1080 Ti", "faster")
    assert c.ratio.inverse.value == pytest.approx(1.3)
    assert c.ratio.inverse.low < 1.3 < c.ratio.inverse.high
    c = only(result_of(tmp_path, rows(SLOW), rows(FAST, precision="fp16")))
    assert (c.axis, c.subject_name, c.verdict) == ("precision", "fp16", "faster")
    assert c.ratio.inverse.value == pytest.approx(1.3)


def at(minutes, given):
    """The rows, the first started these minutes after ten o'clock and the others ten minutes after one another."""
    ten = datetime(2026, 11, 24, 10, tzinfo=UTC)
    return [replace(r, started=(ten + timedelta(minutes=minutes + 10 * n)).isoformat()) for n, r in enumerate(given)]


@pytest.mark.parametrize("changes", [{"precision": "bf16"}, OTHER, {"model": "plain"}])
def test_trials_of_one_session_that_do_not_take_turns_are_of_two(tmp_path, changes):
    """One side after the other under one name, or half of it: hours differ by more than the trials of one hour."""
    ours = rows(FAST, studies="ablation")
    theirs = rows([seconds * 1.05 for seconds in FAST], studies="ablation", **changes)
    turns, first, *apart = (only(result_of(tmp_path, at(0, ours), at(late, theirs))) for late in (5, -5, 300, 35, -35))
    for result in (turns, first):
        assert not any("turns" in note for note in result.notes)
    for result in apart:
        assert any("turns" in note for note in result.notes)
        assert (result.ratio.specimens, result.verdict in {"undecided", "one specimen"}) == (1, True)
    blocks = [
        [r for start, *ends in ((0, 0, 1), (late, 1, 11), (900, 11, 12)) for r in at(start, (given * 2)[slice(*ends)])]
        for given, late in ((ours, 100), (theirs, 500))
    ]
    blocks = [[replace(r, trial=n) for n, r in enumerate(block)] for block in blocks]
    assert any("turns" in note for note in only(result_of(tmp_path, *blocks)).notes), "ends alone take turns"
    if changes is not OTHER:  # two cards are two specimens however they take turns
        assert (turns.ratio.specimens, turns.verdict in {"faster", "slower"}) == (0, True)


@pytest.mark.parametrize(("axis", "values"), [("threads", (4, 8)), ("cudnn_benchmark", ("false", "true"))])
def test_settings_of_every_suite_are_compared_in_one_session(tmp_path, axis, values):
    changes = [
        {"params": f"epochs=1 {axis}={value}"} | ({axis: value} if axis == "threads" else {}) for value in values
    ]
    c = only(result_of(tmp_path, rows(FAST, **changes[0]), rows(SLOW, **changes[1]), by=axis))
    assert (c.verdict, c.notes) == ("faster", ())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"torch": "2.14.0"}, {}),
        ({"suite_digest": "d2", "commit": "b"}, {}),
        ({"params": "cudnn_benchmark=false"},) * 2,
    ],
)
def test_two_stacks_of_one_session_are_two_results(tmp_path, one, other):
    """Neither the precisions nor the changes of an ablation are averaged or paired over two versions of torch."""
    kept = [*rows(SLOW), *rows(FAST, precision="fp16")]
    path = tmp_path / "rows.csv"
    records.append(path, [*kept, *rows(SLOW, **one), *rows(SLOW, precision="fp16", **one)])
    assert sorted(result.value for result in answer([path]).results) == pytest.approx([1.0, 1.3])
    path.unlink()
    plain, change = ({"model": model, "studies": "ablation"} for model in ("plain", "mixed"))
    records.append(path, [*rows(SLOW, **plain, **one), *rows(SLOW, **change, **one), *rows(FAST, **plain)])
    records.append(path, rows(FAST, **change))
    assert {round(c.ratio.value, 2) for c in compare([path]).comparisons} == {1.0}


def test_the_baseline_is_a_cards_newest_session_and_not_its_slowest(tmp_path):
    days = [at(1440 * day, rows([x * n for x in FAST], session=f"s{day}")) for day, n in enumerate((1.1, 1.4, 1.2))]
    theirs = at(9000, rows(FAST, **OTHER, session="t"))
    compared = result_of(tmp_path, *days, theirs).comparisons
    assert {(c.other_name, c.choices) for c in compared} == {("RTX 2080 Ti [session s2]", 2)}


@pytest.mark.parametrize(("start", "differing"), [("forked", ("start",)), ("fresh", ()), ("", ())])
def test_forks_and_new_processes_get_no_verdict(tmp_path, start, differing):
    """Whether they differ on a card has not been measured. Rows from before are of new processes."""
    c = only(result_of(tmp_path, rows(SLOW, start="fresh"), rows(FAST, precision="fp16", start=start)))
    assert (c.differing, c.verdict) == (differing, "precision + stack" if differing else "faster")


@pytest.mark.parametrize("change", [
    {"suite_version": 2}, {"params": "epochs=2"}, {"data": "synthetic"}, {"batch_size": 128},
    {"measured": "projected"}, {"mode": "quick"}, {"weights": "random"}, {"processes": 2},
    {"source": "github.com/someone/else"}, {"model": "resnet34"}, {"batch_policy": "max"},
])  # fmt: skip
def test_unlike_rows_are_never_compared(tmp_path, change):
    result = result_of(tmp_path, rows(FAST), rows(SLOW, **OTHER, **change))
    assert result.comparisons == []


def test_under_max_the_batch_is_an_outcome_and_splits_the_speedup(tmp_path):
    c = only(
        result_of(
            tmp_path,
            rows(FAST, batch_policy="max", batch_size=512),
            rows(SLOW, **OTHER, batch_policy="max", batch_size=256),
        )
    )
    assert c.verdict == "faster"
    result = result_of(
        tmp_path,
        rows(SLOW, batch_policy="max", batch_size=256),
        rows(FAST, precision="fp16", batch_policy="max", batch_size=512),
        rows(FAST, precision="fp16", batch_policy="max-fp32", batch_size=256),
    )
    assert sorted(c.notes[0] for c in result.comparisons) == ["batch 2 x", "same batch"]


@pytest.mark.parametrize(
    "change",
    [
        {"torch": "2.14.1"},
        {"cudnn": "90800"},
        {"threads": 16},
        {"memory_limit_bytes": 10**9},
        {"params": "cudnn_benchmark=false epochs=1"},
    ],
)
def test_another_stack_leaves_the_ratio_and_takes_the_verdict(tmp_path, change):
    c = only(result_of(tmp_path, rows(FAST), rows(SLOW, **OTHER, **change)))
    assert c.verdict == "card + stack"
    assert c.ratio.inverse.value == pytest.approx(1.3)


def test_the_baseline_has_what_the_others_have(tmp_path):
    """The slowest card runs in fp32 alone and has no memory for m2; the others are compared where it cannot be."""
    slow, middle, fast = (
        {"card": card, "device_hash": card} for card in ("NVIDIA GTX 1080 Ti", "NVIDIA RTX 3090", "NVIDIA H100")
    )
    groups = [rows(SLOW, **slow, model="m1")]
    for precision in ("fp32", "bf16"):
        for model in ("m1", "m2"):
            groups.append(rows([v / 1.2 for v in SLOW], **middle, model=model, precision=precision))
            groups.append(rows([v / 2 for v in SLOW], **fast, model=model, precision=precision))
    result = result_of(tmp_path, *groups, by="card")
    assert {c.other_name for c in result.comparisons} == {"RTX 3090"}
    assert [c.subject_name for c in result.comparisons].count("H100") == 4
    assert left_out(result) == []


def test_baseline_and_by(tmp_path):
    groups = rows(FAST), rows(SLOW, **OTHER)
    c = only(result_of(tmp_path, *groups, by="card", baseline="1080"))
    assert c.verdict == "faster"
    with pytest.raises(UserError, match="--baseline H100: there are GTX 1080 Ti, RTX 2080 Ti"):
        result_of(tmp_path, *groups, by="card", baseline="H100")
    with pytest.raises(UserError, match="no such column"):
        result_of(tmp_path, *groups, by="colour")
    groups = rows(SLOW), rows(FAST, precision="fp16"), rows(SLOW, **OTHER)
    result = result_of(tmp_path, *groups, baseline="1080 ti")
    assert {(c.axis, c.other_name) for c in result.comparisons} == {("card", "GTX 1080 Ti"), ("precision", "fp32")}
    with pytest.raises(UserError, match="it could be GTX 1080 Ti, RTX 2080 Ti"):
        result_of(tmp_path, *groups, baseline="ti")
    c = only(result_of(tmp_path, rows(FAST, batch_size=128), rows(SLOW), by="batch"))
    assert {c.subject_name, c.other_name} == {"64", "128"}
    longer = rows(SLOW, epochs=2, params="epochs=2 lr=0.1")  # a column and a parameter
    for by, name in (("epochs", "1"), ("params", "epochs=1 lr=0.1")):
        c = only(result_of(tmp_path, rows(FAST, epochs=1, params="epochs=1 lr=0.1"), longer, by=by))
        assert (c.subject_name, c.verdict) == (name, "faster")
    c = only(result_of(tmp_path, rows(FAST), rows(SLOW, torch="2.10.0", session="s2"), by="torch"))
    assert c.other_name == "2.10.0"


def test_holm_is_over_the_whole_table(tmp_path):
    """26 comparisons of 6 a side are too many for the smallest p there is."""
    fp32 = [rows(SLOW, model=f"m{i}") for i in range(26)]
    fp16 = [rows(FAST, model=f"m{i}", precision="fp16") for i in range(26)]
    assert {c.verdict for c in result_of(tmp_path, *fp32, *fp16).comparisons} == {"undecided"}


@pytest.mark.parametrize(("by", "metric"), [("precision", "seconds"), ("precision", "accuracy"), ("model", "seconds")])
def test_two_rows_of_one_trial_that_differ_are_named_and_leave_no_verdict_whatever_the_order(tmp_path, by, metric):
    """As two runs left them that wrote the same file, or somebody who edited a copy."""
    other = {"model": "plain"} if by == "model" else {"precision": "bf16"}
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    records.append(
        a, rows(FAST, accuracy=0.9, studies="ablation") + rows(SLOW, accuracy=0.9, studies="ablation", **other)
    )
    records.append(b, rows([90.0], accuracy=0.8, studies="ablation"))
    question = Question(by=by if by != "model" else None, metric=metric)
    said = []
    for paths in ([a, b], [b, a], [a, b, a], [b, b, a]):
        result = compare(paths, question)
        c = only(result)
        assert (c.axis, c.verdict) == (by, "conflict")
        reasons = [line for line in result.left_out if "conflict" in line]
        said.append((c.verdict, c.ratio, reasons, result.failed))
    assert [lacking(line, "resnet18 fp32", 2, "conflict", "seconds, accuracy", a, b) for line in said[0][2]] == [[]]
    assert said.count(said[0]) == 4
    assert compare([a], question).comparisons[0].verdict not in {"conflict", ""}


def test_a_conflict_is_a_doubt_of_its_result_and_stays_one_in_what_a_chart_carries(tmp_path):
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    records.append(a, rows(FAST) + rows(SLOW, precision="bf16"))
    records.append(b, rows([90.0], precision="bf16"))
    (found,) = (said := answer([a, b], keep=True)).results
    assert found.caveats == ("resnet18 bf16: 2 rows contradict each other",)
    assert "no verdict: conflict" in found.sentence
    carried = tmp_path / "carried.csv"
    carried.write_bytes(said.table(None))
    (again,) = answer([carried]).results
    assert (again.caveats, again.verdict) == (found.caveats, "conflict")


def test_a_trial_that_was_interrupted_or_ran_again_takes_nothing_away(tmp_path):
    lost = row(status="interrupted", seconds=None, measured="", trial=0)
    result = result_of(tmp_path, [lost], rows(FAST))
    assert [group.trials for group in result.workloads[0].groups] == [6]
    assert result.workloads[0].holes == []
    (line,) = left_out(result)
    assert lacking(line, 1) == []
    lost = [row(precision="bf16", trial=i, status="timed_out", seconds=None, measured="") for i in range(3)]
    lost.append(row(precision="bf16", trial=6, status="interrupted", seconds=None, measured=""))
    c = only(result_of(tmp_path, rows(SLOW), lost, rows(FAST, precision="bf16")))
    assert (c.verdict, c.notes) == ("faster", ())
    apart = result_of(tmp_path, rows([1.0], session=""), rows([2.0], session=""))
    assert [group.trials for group in apart.workloads[0].groups] == [2], "no session: nobody knows that they are one"


def test_sampled_trials_are_one_case_whether_or_not_the_sample_was_all(tmp_path):
    some = {"mode": "sampled", "precision": "bf16"}
    split = [row(trial=i, seconds=s, measured=("projected", "measured")[i % 2], **some) for i, s in enumerate(FAST)]
    result = result_of(tmp_path, rows(SLOW, mode="sampled"), split)
    assert only(result).verdict == "faster"
    assert [(group.trials, group.measured) for group in result.workloads[0].groups] == [
        (6, "measured"),
        (6, "projected"),
    ]
