"""Rows to groups: pooling, names, order, what is left out, and cases without a trial."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from facts import lacking
from rows import group, row, rows

from gpubench.analysis.compare import once
from gpubench.analysis.groups import card_label, completed, groups_of, holes_of, in_order, list_without_value, only_sums
from gpubench.analysis.metrics import SECONDS, valued
from gpubench.analysis.specimens import labels_of
from gpubench.rows import write as records
from gpubench.rows.alike import GROUP, READ_IDENTITY, STACK_PARAMS
from gpubench.rows.params import params_without
from gpubench.rows.read import load
from gpubench.rows.row import COLUMNS, NUMBERS

NEVER = {"seconds": None, "measured": "", "samples_per_second": None}


@pytest.fixture
def frame_of(tmp_path):
    """Makes of rows the frame that `compare` begins with."""

    def frame(*given, **options):
        path = tmp_path / "rows.csv"
        path.unlink(missing_ok=True)
        records.append(path, given)
        return completed(valued(load([path], **options).frame, SECONDS, None))

    return frame


def made(frame):
    """The groups of a frame."""
    return groups_of(frame, frame["status"] == "ok", labels_of(frame))


def numbers(frame):
    """The identity of each row."""
    return frame["identity"].tolist()


def test_what_the_key_and_the_stack_need(frame_of):
    params = "cudnn_benchmark=false epochs=3 threads=16 width=2"
    frame = frame_of(
        row(params=params, batch_size=48, processes=None),
        row(params="epochs=3 threads=0", batch_policy="max", mode="sampled", device_hash="", memory_limit_bytes=5),
    )
    one, two = (frame.iloc[number] for number in (0, 1))
    assert (one["fixed_batch"], one["processes"], one["memory_limit_bytes"]) == (48, 1, 0)
    assert (one["cudnn_benchmark"], one["threads_asked"], one["params"]) == ("false", "16", "epochs=3 width=2")
    assert (one["basis"], one["unknown_device"], one["power_cap"]) == ("measured", "", "")
    assert (two["fixed_batch"], two["processes"], two["memory_limit_bytes"]) == (0, 1, 5)
    assert (two["cudnn_benchmark"], two["threads_asked"], two["params"]) == ("", "", "epochs=3")
    assert (two["basis"], two["unknown_device"]) == ("", "cuda:0")
    assert {"laps", "precision_proof"}.isdisjoint(frame)


@pytest.mark.parametrize(
    ("watts", "usual", "cap"),
    [(200.0, 250.0, "200 W"), (252.4, 250.0, ""), (252.6, 250.0, "253 W"), (None, 250.0, ""), (200.0, None, "")],
)
def test_a_power_limit_is_named_where_it_is_over_a_percent_off(frame_of, watts, usual, cap):
    frame = frame_of(row(power_limit_watts=watts, default_power_limit_watts=usual))
    assert frame["power_cap"].tolist() == [cap]


@pytest.mark.parametrize(("changes", "alike"), [
    ({"trial": 7, "seconds": 5.0, "driver": "1", "cpu": "Arm"}, True), ({"batch_size": 32}, False),
    ({"session": "s2"}, False), ({"torch": "2.1.0"}, False), ({"threads": 4}, False),
    ({"device": "cuda:1"}, False), ({"memory_limit_bytes": 5}, False), ({"source": "somebody"}, False),
])  # fmt: skip
def test_rows_that_agree_in_all_that_tells_them_apart_have_one_number(frame_of, changes, alike):
    by_itself = frame_of(row(), row(**changes))
    assert (numbers(by_itself) == [0, 0]) == alike
    given = frame_of(row(), row(**changes), identity=READ_IDENTITY)
    assert (numbers(given) == [0, 0]) == alike


def test_a_recipe_is_without_the_stack():
    expected = {
        "epochs=3": "epochs=3",
        "cudnn_benchmark=true epochs=3 threads=0": "epochs=3",
        "a=1 threads=4 b=2": "a=1 b=2",
        "my_threads=4": "my_threads=4",
        "": "",
    }
    assert {params: params_without(params, STACK_PARAMS) for params in expected} == expected


def test_sums_of_gradients_train_nothing():
    """What a row's table holds tells it, whatever its suite and model are called."""
    sums, stages = '[["what", "busbw"], ["message", 1.5]]', '[["hours", "size"], [0.5, 128]]'
    frame = pd.DataFrame({"suite": ["scaling", "scaling", "mine"], "table": [sums, "", stages]})
    assert only_sums(frame).tolist() == [True, False, False]
    assert only_sums(frame.assign(suite="mine")).tolist() == [True, False, False]


def superseded(frame):
    """(trials that stay with their seconds, what is said)."""
    left_out = []
    kept = once(frame, left_out)
    return [(int(r["trial"]), r["status"], r["seconds"]) for _, r in kept.iterrows()], left_out


def test_a_trial_counts_once_and_a_training_stands_before_tries_whatever_the_order(frame_of):
    kept, (line,) = superseded(frame_of(*rows([5.0, 6.0]), row(trial=1, seconds=6.0)))
    assert kept == [(0, "ok", 5.0), (1, "ok", 6.0)]
    assert lacking(line, 1) == []
    ran, failed, timed_out, stopped = (
        row(trial=3, seconds=8.0),
        *(row(trial=3, status=status, **NEVER) for status in ("failed", "timed_out", "interrupted")),
    )
    again = "1 row(s) of failed or stopped trials that ran again"
    missed = row(trial=3, seconds=8.0, status="goal_missed")
    for stands, other in ((ran, failed), (missed, failed), (timed_out, failed), (failed, stopped)):
        for order in ((stands, other), (other, stands)):
            kept, said = superseded(frame_of(*order))
            assert [status for _, status, _ in kept] == [stands.status]
            assert said == [again]
    again, twice = superseded(frame_of(failed, ran, failed, ran))[1]
    assert lacking(again, 2) == lacking(twice, 1) == []


@pytest.mark.parametrize(
    ("changes", "columns"),
    [
        ({"seconds": 7.0}, "seconds"),
        ({"seconds": None}, "seconds"),
        ({"marks": "shared"}, "marks"),
        ({"status": "goal_missed"}, "status"),
        ({"batch_policy": "max", "batch_size": 65}, ""),  # which is another case
        ({"commit": "b" * 40, "seconds": 7.0}, ""),  # versions that take turns
        ({"threads": 4, "seconds": 7.0, "epochs": 2, "samples": 5}, "seconds, threads, epochs"),
    ],
)
def test_rows_of_one_trial_that_differ_are_a_conflict_in_any_order(frame_of, changes, columns):
    one, other = row(trial=1, seconds=6.0), replace(row(trial=1, seconds=6.0), **changes)
    for order in ((one, other), (other, one), (one, other, one), (other, one, other, one)):
        frame = frame_of(row(seconds=5.0), *order)
        kept = once(frame, said := [], lambda place: ("a.csv", "b.csv")[place % 2])
        conflicts = kept[kept["status"] == "conflict"]
        assert len(kept) == 3
        assert [lacking(line, len(order) - 2) for line in said] == [[]] * (len(order) > 2)
        reasons = [f"rows of one trial differ in {columns} (a.csv, b.csv)"] * 2 if columns else []
        assert conflicts["reason"].tolist() == reasons
        assert frame["status"].tolist().count("conflict") == 0


def test_a_conflict_names_a_few_of_many_files(frame_of):
    frame = frame_of(*(row(seconds=float(n)) for n in range(1, 8)))
    kept = once(frame, [], lambda place: f"{place}.csv")
    (reason,) = set(kept["reason"])
    assert lacking(reason, "seconds", "0.csv", "1.csv", "2.csv", 4) == []


@pytest.mark.parametrize(
    "change", [{"session": "s2"}, {"memory_limit_bytes": 5}, {"device": "cuda:1"}, {"precision": "fp16"}, {"trial": 1}]
)
def test_another_case_or_session_is_another_trial(frame_of, change):
    assert superseded(frame_of(row(), row(**change)))[1] == []


@pytest.mark.parametrize("unknown", [{"trial": None}, {"session": ""}])
def test_rows_that_are_no_trial_of_a_session_all_count(frame_of, unknown):
    frame = frame_of(row(**unknown), row(**unknown))
    assert len(once(frame, [])) == 2


def test_trials_are_pooled_and_their_outcomes_are_medians(frame_of):
    (group,) = made(
        frame_of(
            row(seconds=100.0, samples_per_second=10.0, accuracy=0.5, reason="a", marks="throttled shared"),
            row(seconds=108.0, samples_per_second=40.0, accuracy=0.75, trial=1, marks="shared"),
            row(seconds=101.0, samples_per_second=20.0, trial=2, marks="unsteady", reason="b"),
            row(seconds=109.0, samples_per_second=20.0, trial=3, steady="unsteady: moved", marks="unsteady"),
            row(trial=4, status="failed", **NEVER),
            row(trial=5, status="timed_out", **NEVER),
            row(trial=6, status="timed_out", **NEVER),
            row(trial=7, status="interrupted", **NEVER),
        )
    )
    assert (group.values, group.trials, group.label) == ((100.0, 108.0, 101.0, 109.0), 4, "RTX 2080 Ti")
    assert (group.median, group.samples_per_second, group.accuracy) == (104.5, 20.0, 0.625)
    assert (group.reason, group.measured) == ("a; b", "measured")
    assert group.marks == {"throttled": 1, "shared": 2, "unsteady": 2}
    assert (group.lost, group.lost_note) == ({"timed_out": 2, "failed": 1}, "3 of 7 trials have no result")
    assert (group.number("accuracy"), group.number("seconds")) == (0.625, 100.0)
    assert math.isnan(group.number("no_such_column"))
    assert math.isnan(group.number("loss"))
    with pytest.raises(AttributeError):
        _ = group.no_such_column


def test_one_projected_trial_makes_the_group_projected(frame_of):
    sampled = [row(mode="sampled", trial=i, measured=("measured", "projected")[i == 1]) for i in range(3)]
    other = row(mode="sampled", precision="fp16")
    assert [(c.precision, c.measured) for c in made(frame_of(*sampled, other))] == [
        ("fp32", "projected"),
        ("fp16", "measured"),
    ]


@pytest.mark.parametrize("column", sorted(set(GROUP) & set(COLUMNS) - {"memory_limit_bytes"}))
def test_rows_that_differ_in_any_of_these_are_not_pooled(frame_of, column):
    other = 77 if column in NUMBERS else "epochs=2" if column == "params" else "another"
    assert len(made(frame_of(row(), row(**{column: other})))) == 2


def test_which_trials_without_a_time_belong_to_a_group(frame_of):
    lost = row(trial=1, status="out_of_memory", threads=None, torch="", **NEVER)
    elsewhere = row(trial=1, status="out_of_memory", precision="fp16", **NEVER)
    (found,) = made(frame_of(row(), lost, elsewhere))
    assert found.lost == {"out_of_memory": 1}
    frame = frame_of(
        row(),
        row(trial=1, status="failed", **NEVER),
        row(precision="bf16", status="failed", reason="first", **NEVER),
        row(precision="bf16", status="failed", reason="last", trial=1, **NEVER),
        row(precision="bf16", status="interrupted", reason="stopped", trial=2, **NEVER),
        row(precision="fp16", status="interrupted", trial=2, card="NVIDIA A100", **NEVER),
    )
    holes = holes_of(frame, frame["status"] == "ok", labels_of(frame))
    lacking = [(c.precision, c.label, c.status, c.reason, c.trials) for c in holes]
    assert lacking == [("fp16", "A100", "interrupted", "", 0), ("bf16", "RTX 2080 Ti", "failed", "last", 0)]


def test_a_group_has_a_median_an_interval_and_the_trials_of_its_parts():
    one = group([100.0, 90.0, 130.0])
    assert (one.median, one.interval, one.trials, one.adaptive, one.lost_note) == (100, None, 3, False, "")
    assert group([5.0] * 5 + [9.0]).interval == (5, 9)
    assert group([float(n) for n in range(1, 18)]).interval == (5, 13)
    one = group([float(n) for n in range(1, 18)], until=0.01)
    assert (one.adaptive, one.interval) == (True, (4, 14))
    several = group([5.0, 6.0], until=0.01, parts=(one, one))
    assert (several.adaptive, several.trials) == (False, 34)
    assert group(until=0.0).adaptive is False
    parts = group([1.0, 2.0]), group([3.0])
    assert group([2.0, 3.0], parts=parts, lost={"failed": 1}).lost_note == "1 of 4 trials have no result"


def order(*groups):
    return [(c.suite, c.model, c.label, c.precision, c.batch_policy) for c in in_order(groups)]


def test_the_order_of_groups():
    groups = [
        group(suite=suite, model=model)
        for suite, model in (("z", "net101"), ("a", "big"), ("z", "net18"), ("a", "art"), ("z", "net9"), ("a", "big"))
    ]
    assert [(suite, model) for suite, model, *_ in order(*groups)] == [
        ("z", "net9"), ("z", "net18"), ("z", "net101"), ("a", "big"), ("a", "big"), ("a", "art"),
    ]  # fmt: skip
    groups = [group(model=model, rung=rung) for model, rung in (("a1", None), ("b", 2), ("c", 1), ("a", 10))]
    assert [model for _, model, *_ in order(*groups)] == ["c", "b", "a", "a1"]
    names = ["fp32", "tf32", "fp16", "bf16", "fp16-master", "fp16-pure", "fp8"]
    groups = [group(precision=name, label=label) for name in reversed(names) for label in ("B", "A")]
    groups.append(group(precision="fp32", label="A", batch_policy="a"))
    ordered = [(label, precision, policy) for _, _, label, precision, policy in order(*groups)]
    assert ordered[:3] == [("A", "fp32", "a"), ("A", "fp32", "fixed"), ("A", "tf32", "fixed")]
    assert [precision for label, precision, _ in ordered if label == "B"] == names


def test_what_is_bad_is_counted_by_case_and_reason(frame_of):
    frame = frame_of(
        row(status="failed", reason="it\x1b broke", **NEVER),
        row(status="failed", reason="it\x1b broke", trial=1, **NEVER),
        row(status="out_of_memory", model="zoo", trial=2, **NEVER),
        row(trial=3, energy_joules=None),
    )
    left_out = []
    list_without_value(frame, left_out, "energy")
    assert len(left_out) == 3
    assert lacking(left_out[0], "resnet18 fp32", "RTX 2080 Ti", 2, "failed", "it\ufffd broke") == []
    assert lacking(left_out[1], "zoo fp32", 1, "out of memory") == []
    assert lacking(left_out[2], "resnet18 fp32", 1, "ok", "energy") == []


def test_what_makes_it_another_card_and_its_label(frame_of):
    assert card_label("NVIDIA A100", "", "") == "A100"
    assert card_label("NVIDIA A100", "", "0") == "A100"
    assert card_label("NVIDIA A100", "200 W", str(11 * 2**30)) == "A100 @ 200 W (limit 11 GiB)"
    assert card_label("NVIDIA A100", "", str(3 * 2**29)) == "A100 (limit 1.5 GiB)"
    capped = row(power_limit_watts=200.0, default_power_limit_watts=250.0)
    assert labels(frame_of(row(), capped)) == ["RTX 2080 Ti", "RTX 2080 Ti @ 200 W"]


def labels(frame):
    return sorted(labels_of(frame).values())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([{}, {"precision": "fp16"}], [""]),
        ([{}, {"device_hash": "bbbbbb"}], [" #aaaa", " #bbbb"]),
        ([{"device_hash": ""}, {"device_hash": "", "device": "cuda:1"}], [" (cuda:0)", " (cuda:1)"]),
        ([{}, {"device_hash": "", "device": "cuda:1"}], [" #aaaa", " (cuda:1)"]),
        ([{"session": "s1"}, {"session": "s2"}], [" [session s1]", " [session s2]"]),
        ([{"session": "1234567"}, {"session": "7654321"}], [" [session 123456]", " [session 765432]"]),
        ([{"session": "before-1"}, {"session": "before-2"}], [" [session before-1]", " [session before-2]"]),
        ([{"session": "s1"}, {"session": "s2", "model": "zoo"}], ["", ""]),
        ([{"session": "s1"}, {"session": "s2", "torch": "2.1.0"}], [" [session s1]", " [session s2]"]),
        ([{"session": "s1"}, {"session": "s2", "memory_limit_bytes": 2**30}], ["", " (limit 1 GiB)"]),
        ([{}, {"source": "github.com/me/it"}], ["", " (me)"]),
        ([{"source": "github.com/me/it"}], [""]),
        ([{"source": "github.com/me/it"}, {"source": "paper.org"}], [" (me)", " (paper.org)"]),
        ([{"source": "a"}, {"source": "a", "device_hash": "bbbb"}], ["", ""]),
    ],
)
def test_a_label_says_what_sets_a_card_apart(frame_of, given, expected):
    assert labels(frame_of(*(row(**changes) for changes in given))) == [f"RTX 2080 Ti{more}" for more in expected]


def test_a_group_knows_its_case_by_which_its_rows_are_found(frame_of):
    """Trials without a time and those on another stack are of the case; another precision or session is not."""
    frame = frame_of(
        row(), row(precision="fp16"), row(trial=1, status="failed", **NEVER), row(trial=2, torch="2.1.0"),
        row(session="s2"),
    )  # fmt: skip
    assert frame["case"].tolist() == [0, 1, 0, 0, 2]
    groups = {(c.precision, c.row["torch"], c.session): c for c in made(frame)}
    assert {key: group.case for key, group in groups.items()} == {
        ("fp32", "2.15.0+cu132", "s1"): 0, ("fp32", "2.1.0", "s1"): 0, ("fp32", "2.15.0+cu132", "s2"): 2,
        ("fp16", "2.15.0+cu132", "s1"): 1,
    }  # fmt: skip
    one, two = groups["fp32", "2.1.0", "s1"], groups["fp16", "2.15.0+cu132", "s1"]
    assert (one.cases, group(parts=(one, two)).cases) == ({0}, {0, 1})
