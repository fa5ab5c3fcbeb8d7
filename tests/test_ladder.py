"""Goals and ladders: a miss is a row, its time counts, and the limit is where it can be known."""

from dataclasses import replace

import pytest
from answers import answered, section, texts
from facts import lacking
from measured_rows import rows_of_run
from rows import row, rows

from gpubench.analysis.compare import compare
from gpubench.rows.write import append
from gpubench.studies import ladder as ladders
from gpubench.studies.bound import bound_of

MISSES = "misses_goal.py"


def ladders_of(tmp_path, *given):
    (tmp_path / "a.csv").unlink(missing_ok=True)
    append(tmp_path / "a.csv", given)
    result = compare([tmp_path / "a.csv"])
    return ladders.ladders_of(result.frame, result.labels)


def lines(tmp_path, *given):
    """The table of the one ladder of these rows."""
    (wanted,) = [each for each in section(answered(tmp_path, given), "ladder").tables if each.columns[0].name == "step"]
    return texts(wanted)


def rung(number, seconds, **changes):
    return rows(seconds, suite="cifar10", model=f"m{number}", rung=number, **changes)


def test_a_run_below_the_goal_is_goal_missed_and_its_accuracy_kept(cli, tmp_path, request):
    suite = request.path.parent / "suites" / MISSES
    options = ("--precision", "fp32", "--full", "--repeats", 4, "--seed", 88)
    frame = rows_of_run(cli, tmp_path, suite, *options, code=4)  # seeds 88 and 89 miss, 90 and 91 reach it
    assert set(frame["batch_size"][frame["model"] == "second"]) == {4}
    missed = frame[frame["status"] == "goal_missed"]
    assert sorted(missed["accuracy"]) == [0.88, 0.88, 0.89, 0.89]
    assert (missed["success_rate"] == 0).all()
    assert missed["reason"].str.contains("the goal is 0.9").all()
    assert (missed["seconds"] > 0).all()
    assert sorted(frame["accuracy"][frame["status"] == "ok"]) == [0.9, 0.9, 0.91, 0.91]
    result = compare([tmp_path / "a.csv"])
    (ladder,) = ladders.ladders_of(result.frame, result.labels)
    assert [each.model for each in ladder.rungs] == ["first", "second"]
    assert [(rung.trials, rung.number("success_rate")) for rung in ladder.rungs] == [(4, 0.5)] * 2
    (found,) = ladders.sections(result)
    at = [column.name for column in found.tables[0].columns].index("seconds to a success")
    expected = [2 * rung.median for rung in ladder.rungs]
    assert [line[at] for line in found.tables[0].lines] == pytest.approx(expected)


def test_a_goal_is_no_matter_of_a_sampled_run(cli, tmp_path, request):
    suite = request.path.parent / "suites" / MISSES
    frame = rows_of_run(cli, tmp_path, suite, "--precision", "fp32", "--quick")
    assert set(frame["status"]) == {"ok"}
    assert frame["success_rate"].isna().all()


def test_gains_are_ratios_of_medians_over_the_last_rung_that_is_there(tmp_path):
    given = [*rung(2, [40, 50, 60]), *rung(1, [100, 90, 110]), *rung(3, [25.0])]
    (ladder,) = ladders_of(tmp_path, *given)
    assert [group.rung for group in ladder.rungs] == [1, 2, 3]
    assert [before.median / rung.median if before else None for rung, before in ladder.steps] == [None, 2.0, 2.0]
    printed = lines(tmp_path, *rung(1, [30.0]), *rung(2, [20.0]), *rung(5, [10.0]))
    assert [(line["gain"], line["since"]) for line in printed] == [("", ""), ("1.50", ""), ("2.00", "m2")]


def test_the_line_of_a_rung_has_its_marks_and_how_many_reached_the_goal(tmp_path):
    given = [*rung(1, [123456.0], marks="unsteady", reason="a note"), *rung(2, [26.0], samples_per_second=3.42)]
    first, second = lines(tmp_path, *given)
    assert (first["seconds"], first["notes"]) == ("123,456", "1 of 1 unsteady; a note")
    assert (second["seconds"], second["samples/s"], second["notes"]) == ("26.0", "3.42", "")
    both = [replace(each, success_rate=rate) for each, rate in zip(rung(1, [30.0, 31.0]), (1.0, 0.0), strict=True)]
    given = [*both, *rung(2, [26.0], success_rate=0.9)]
    assert [line["reached the goal"] for line in lines(tmp_path, *given)] == ["1 of 2", "90% of the runs"]
    lost = [replace(r, trial=9, status="timed_out", seconds=None, measured="") for r in both]
    line, _ = lines(tmp_path, *both, lost[0], replace(lost[1], trial=8), *rung(2, [26.0]))
    note = "2 of 4 trials diverged or reached the time limit"
    assert (line["reached the goal"], line["notes"], line["seconds to a success"]) == ("1 of 4", note, "122")


def test_trials_of_another_torch_are_left_out_of_a_rung_and_counted(tmp_path):
    newer = rung(2, [40.0, 41.0, 42.0], torch="2.15.0", accuracy=0.8, default_power_limit_watts=250.0)
    newer[2] = replace(newer[2], accuracy=0.95, power_limit_watts=250.01)  # a driver reads it a little differently
    older = rung(2, [60.0, 61.0], torch="2.14.0", accuracy=0.5)
    (ladder,) = ladders_of(tmp_path, *rung(1, [80.0, 81.0, 82.0], torch="2.15.0"), *newer, *older)
    assert [group.median for group in ladder.rungs] == [81.0, 41.0]
    assert ladder.rungs[1].accuracy == pytest.approx(0.85)
    assert [ladders._notes(group) for group in ladder.rungs] == [
        [], ["2 trials of another batch, torch or code left out"],
    ]  # fmt: skip


def test_which_rows_are_ladders_of_their_own(tmp_path):
    assert ladders_of(tmp_path, row()) == []
    given = [r for p in ("fp32", "bf16") for n in (1, 2) for r in rung(n, [10.0], precision=p)]
    given += [r for n in (1, 2) for r in rung(n, [10.0], source="elsewhere", session="s2")]
    assert len(ladders_of(tmp_path, *given)) == 3


def test_the_limit_at_the_listed_or_else_the_measured_peak(tmp_path):
    """2.76 GFLOP x 50,000 images x 35 epochs / 125 TFLOP/s is about 40 s, as D. Page reckons."""
    facts = {"card": "Tesla V100-SXM2-16GB", "precision": "fp16", "flops_per_sample": 2.757e9}
    (ladder,) = ladders_of(
        tmp_path,
        *rung(1, [356.0], run_samples=35 * 50_000, measured_peak_flops=100e12, **facts),
        *rung(2, [323.0], **facts),
    )
    first, second = (bound_of(group.row) for group in ladder.rungs)
    assert (first.limit_seconds, first.peak) == (pytest.approx(38.6, abs=0.05), "listed")
    assert second.limit_seconds is None
    unlisted = facts | {"card": "made-up", "run_samples": 35 * 50_000, "measured_peak_flops": 100e12}
    (other,) = ladders_of(tmp_path, *rung(1, [356.0], **unlisted))
    bound = bound_of(other.rungs[0].row)
    assert (bound.limit_seconds, bound.peak) == (pytest.approx(48.2, abs=0.1), "measured")


def test_the_chart_has_a_bar_per_rung_the_limit_and_what_missed_the_goal(tmp_path):
    facts = {"card": "Tesla V100-SXM2-16GB", "precision": "fp16", "flops_per_sample": 2.757e9}
    given = [r for n in (1, 2, 3) for r in rung(n, [300.0 / n], run_samples=1_750_000, **facts)]
    ladder = section(answered(tmp_path, given), "ladder")
    (chart,) = ladder.results[0].charts
    assert [(group.name, group.bars[0].value, group.text) for group in chart.groups] == [
        ("m1", 300.0, ""), ("m2", 150.0, "2.00x"), ("m3", 100.0, "1.50x"),
    ]  # fmt: skip
    ((name, limits),) = chart.marks.items()
    assert "compute limit" in name
    assert limits == {model: pytest.approx(38.6, abs=0.05) for model in ("m1", "m2", "m3")}
    line = lines(tmp_path, *given)[0]
    assert (line["limit, s"], line["limit / seconds"], line["peak"]) == ("38.6", "13%", "listed")
    assert lacking(ladder.results[0].said, "m1", "m3", "3.00", "fp16", "Tesla V100-SXM2-16GB") == []
    same = {"params": "epochs=1 compile=false workers=0"}
    given = [*rung(1, [30.0], success_rate=0.0, status="goal_missed", **same), *rung(2, [20.0], **same)]
    (chart,) = section(answered(tmp_path, given), "ladder").charts
    assert [group.bars[0].note for group in chart.groups] == ["0 of 1 at goal", ""]
    assert ("epochs=1" in chart.foot, "compile" in chart.foot) == (True, False)
    assert chart.title == "1 of 2 steps reached the goal: RTX 2080 Ti fp32"
    (chart,) = section(answered(tmp_path, [*given, *rung(3, [10.0], **same)]), "ladder").results[0].charts
    assert "The steps from m2 to m3" in chart.title


def test_a_ladder_is_of_seconds_and_has_a_chart_of_two_rungs_or_more(tmp_path):
    given = [*rung(1, [10.0]), *rung(2, [5.0])]
    assert "ladder" in {each.study for each in answered(tmp_path, given).sections}
    assert "ladder" not in {each.study for each in answered(tmp_path, given, metric="rate").sections}
    given = [*rung(1, [300.0]), *rung(2, [100.0]), *rung(2, [50.0], precision="bf16")]
    ladder = section(answered(tmp_path, given), "ladder")
    assert len(ladder.results) == 1
    assert ladder.charts == ()


def test_a_miss_says_more_than_an_interruption_after_it(tmp_path):
    (missed,) = rung(1, [30.0], success_rate=0.0, status="goal_missed")
    stopped = replace(missed, status="interrupted", seconds=None, success_rate=None, trial=1)
    append(tmp_path / "a.csv", [missed, stopped])
    (workload,) = compare([tmp_path / "a.csv"]).workloads
    assert [hole.status for hole in workload.holes] == ["goal_missed"]
