"""Other figures than seconds, prices, filters, and the forms a table can take."""

import json
from dataclasses import replace

import pytest
from facts import lacking
from rows import row, rows
from typer.testing import CliRunner

from gpubench.analysis.compare import Question, compare
from gpubench.analysis.metrics import METRICS, read_prices
from gpubench.cli.app import app
from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.show.formats import rendered
from gpubench.show.terminal import screen
from gpubench.studies.answer import answer

FAST = [100.0, 100.1, 100.2, 99.9, 99.8, 100.05]
OTHER = {"card": "NVIDIA GeForce GTX 1080 Ti", "device": "cuda:1", "device_hash": "bbbb"}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.csv"
    slow = rows([v * 2 for v in FAST], samples_per_second=250.0, peak_memory_bytes=2**30, epochs=10, **OTHER)
    mixed = rows([v / 1.6 for v in FAST], precision="fp16", peak_memory_bytes=2**30, epochs=10)
    records.append(path, [*rows(FAST, peak_memory_bytes=2**31, epochs=10), *slow, *mixed])
    return path


@pytest.fixture
def prices(tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text('["RTX 2080 Ti"]\nhourly = 0.36\n["1080 Ti"]\nprice = 876.6\nyears = 1\n')
    return file


def test_prices(path, prices, tmp_path):
    assert read_prices(prices) == {"RTX 2080 Ti": 0.36, "1080 Ti": pytest.approx(0.1)}
    (tmp_path / "short.toml").write_text('"RTX 2080 Ti" = 0.36')
    assert read_prices(tmp_path / "short.toml") == {"RTX 2080 Ti": 0.36}
    for wrong in ('["x"]\nhourly = 0', '["x"]\nprice = 1', 'x = "1 dollar"', '["x"]\nprice = 1\nyears = 0', "nonsense"):
        (tmp_path / "wrong.toml").write_text(wrong)
        with pytest.raises(UserError, match="--price"):
            compare([path], Question(prices=tmp_path / "wrong.toml"))


def table_of(said, name):
    """The lines of the first table of an answer's JSON that is called so, by column."""
    tables = [table for section in json.loads(rendered(said, "json"))["sections"] for table in section["tables"]]
    table = next(table for table in tables if table["name"] == name)
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, line, strict=True)) for line in table["lines"]]


def medians(path, metric, prices=None):
    result = compare([path], Question(metric=metric, prices=prices))
    cells = {(c.label, c.precision): c for workload in result.workloads for c in workload.groups}
    return {key: result.metric.shown(cell.median) for key, cell in cells.items()}


def test_each_metric_in_its_own_unit_and_words(path, prices):
    assert medians(path, "rate")[("GTX 1080 Ti", "fp32")] == 250
    assert medians(path, "memory")[("RTX 2080 Ti", "fp32")] == 2
    cost = medians(path, "cost", prices)
    assert cost[("RTX 2080 Ti", "fp32")] == pytest.approx(0.01, rel=1e-3)
    assert cost[("GTX 1080 Ti", "fp32")] == pytest.approx(0.1 * 200 / 3600, rel=1e-3)
    assert medians(path, "value", prices)[("GTX 1080 Ti", "fp32")] == pytest.approx(250 * 36000, rel=1e-6)
    assert medians(path, "batch")[("GTX 1080 Ti", "fp32")] == 64
    (card, *_) = answer([path], Question(metric="cost", prices=prices)).results
    assert lacking(card.said, "GTX 1080 Ti", "1.80", "RTX 2080 Ti", "fp32", "dollars/run") == []
    result = compare([path], Question(metric="value", prices=prices, by="card"))
    (comparison,) = [c for c in result.comparisons if c.axis == "card"]
    assert comparison.other_name == "RTX 2080 Ti"
    assert comparison.ratio.inverse.value == pytest.approx(0.36 / 0.1 / 2, rel=1e-3)


FULL = [0.900, 0.902, 0.898, 0.901, 0.899, 0.900]


def accurate(values, **changes):
    return [row(trial=n, accuracy=v, **changes) for n, v in enumerate(values)]


def accuracies(path, mixed, trials=6, **changes):
    theirs = accurate([v + mixed for v in FULL[:trials]], precision="fp16", **changes)
    records.append(path, [*accurate(FULL[:trials]), *theirs])
    (comparison,) = compare([path], Question(metric="accuracy")).comparisons
    return comparison


@pytest.mark.parametrize(("mixed", "verdict"), [(0.001, "non-inferior"), (-0.02, "inferior"), (-0.004, "undecided")])
def test_is_mixed_precision_as_accurate_within_half_a_point(tmp_path, mixed, verdict):
    comparison = accuracies(tmp_path / "rows.csv", mixed)
    assert comparison.verdict == verdict
    assert any(f"{mixed * 100:+.2f} points" in note for note in comparison.notes)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({"trials": 1}, "one run"), ({"trials": 2}, "few trials"), ({"torch": "2.10.0"}, "precision + stack")],
)
def test_what_may_not_be_judged_in_seconds_may_not_in_accuracy(tmp_path, changes, verdict):
    comparison = accuracies(tmp_path / "rows.csv", 0.001, **changes)
    assert comparison.verdict == verdict
    assert any("+0.10 points" in note for note in comparison.notes)


def test_holm_is_over_all_accuracies(tmp_path):
    """Of one ratio p is 0.01, which among ten decides nothing."""
    scattered = [0.900, 0.906, 0.894, 0.903, 0.897, 0.900]
    models = [f"m{n}" for n in range(10)]
    for number in (1, 10):
        path = tmp_path / f"{number}.csv"
        for model in models[:number]:
            theirs = accurate([v + 0.003 for v in scattered], model=model, precision="fp16")
            records.append(path, [*accurate(scattered, model=model), *theirs])
    alone = compare([tmp_path / "1.csv"], Question(metric="accuracy")).comparisons
    many = compare([tmp_path / "10.csv"], Question(metric="accuracy")).comparisons
    assert 0.005 < alone[0].ratio.p < 0.02
    assert [c.verdict for c in alone] == ["non-inferior"]
    assert {c.verdict for c in many} == {"undecided"}


def test_the_most_accurate_is_the_baseline_and_missed_goals_have_an_accuracy(tmp_path):
    path = tmp_path / "rows.csv"
    missed = row(trial=5, accuracy=0.80, status="goal_missed")
    records.append(path, [*accurate([0.80] * 5), missed, *accurate([0.90, 0.91] * 3, **OTHER)])
    said = answer([path], Question(metric="accuracy"))
    assert [line["card"] for line in table_of(said, "cases")] == ["GTX 1080 Ti", "RTX 2080 Ti"]
    (line,) = table_of(said, "ratios")
    assert (line["trials"], line["verdict"], line["points"]["value"]) == (6, "one specimen", pytest.approx(-10.5))
    assert said.results[0].said == "RTX 2080 Ti is 10.50 points less accurate than GTX 1080 Ti in fp32"


def test_accuracies_have_the_difference_of_means_in_points_and_the_verdict(tmp_path):
    path = tmp_path / "rows.csv"
    uneven = [v - 0.09 * (n < 2) for n, v in enumerate(FULL)]
    same = [accurate(FULL, **changes) for changes in ({}, {"model": "m2"}, {"model": "m2", "precision": "fp16"})]
    records.append(path, [*accurate(uneven, precision="fp16"), *(row for rows in same for row in rows)])
    said = answer([path], Question(metric="accuracy"))
    shown = " ".join(" ".join(screen(said)).split())
    assert lacking(shown, "fp16 may be 1.50 points less accurate", "95%: -3.90 to +0.90 points", "88.50/90.00%") == []
    records.append(path, accurate(uneven, precision="bf16", model="m2"))
    worse = json.loads(rendered(answer([path], Question(metric="accuracy", where=("model=m2",))), "json"))["results"][1]
    assert (worse["value"], worse["verdict"], worse["is_points"]) == (pytest.approx(-3), "undecided", True)


def test_accuracy_is_no_gate(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [*accurate(FULL), *accurate([0.5] * 6, torch="2.10.0", session="s2")])
    line = ["compare", str(path), "--metric", "accuracy", "--by", "torch", "--baseline", "2.15"]
    done = CliRunner().invoke(app, [*line, "--fail-on-slower", "5%"])
    assert done.exit_code == 2
    assert lacking(done.output, "--fail-on-slower", "accuracy") == []


def goals(reached, missed, **changes):
    """Runs of 100 seconds."""
    goal = {"params": "epochs=1 goal=0.94", "accuracy": 0.9, "mode": "full", **changes}
    return [row(trial=n, status="ok" if n < reached else "goal_missed", **goal) for n in range(reached + missed)]


def to_goal(path, *groups):
    for group in groups:
        records.append(path, group)
    return compare([path], Question(metric="time-to-goal"))


def test_time_to_goal_counts_the_runs_that_missed_it_and_has_no_verdict_with_them(tmp_path):
    rates = [row(trial=n, success_rate=rate, model="rates", params="goal=0.94") for n, rate in enumerate((1, 0.5))]
    result = to_goal(tmp_path / "rows.csv", goals(2, 4), goals(0, 3, precision="fp16"), rates)
    cells = {(c.model, c.precision): c for workload in result.workloads for c in workload.groups}
    assert {key: cell.median for key, cell in cells.items()} == {
        ("resnet18", "fp32"): pytest.approx(300),
        ("rates", "fp32"): pytest.approx(100 / 0.75),
    }
    said = answer([tmp_path / "rows.csv"], Question(metric="time-to-goal"))
    assert "33% of the runs reached the goal" in rendered(said, "csv")
    assert [hole.precision for workload in result.workloads for hole in workload.holes] == ["fp16"]
    assert any("fp16" in line and "3 runs missed the goal" in line for line in result.left_out)
    times = {n: {"seconds": value} for n, value in enumerate(FAST)}
    ours = [row(trial=n, params="goal=0.94", **times[n]) for n in times]
    slower = [row(trial=n, params="goal=0.94", precision="bf16", seconds=times[n]["seconds"] * 2) for n in times]
    (sure,) = to_goal(tmp_path / "all.csv", ours, slower).comparisons
    assert (sure.verdict, sure.ratio.value) == ("slower", pytest.approx(2))
    slower[0] = row(trial=0, params="goal=0.94", precision="bf16", seconds=200, status="goal_missed")
    (undecided,) = to_goal(tmp_path / "some.csv", ours, slower).comparisons
    assert undecided.verdict == "not judged"
    assert any("83% and 100% of the runs reached the goal" in note for note in undecided.notes)
    slower[0] = lost_row(reason="crashed", params="goal=0.94", precision="bf16")
    crashed = to_goal(tmp_path / "crashed.csv", ours, slower).comparisons[0].subject
    assert (crashed.row["success"], crashed.lost_note) == (1, "1 of 6 trials have no result")


def lost_row(**changes):
    """A trial that ended without a figure."""
    lost = {"seconds": None, "samples_per_second": None, "measured": "", "threads": None, "status": "failed"}
    return row(**{"params": "epochs=1 goal=0.94", **lost, **changes})


@pytest.mark.parametrize(
    "cut", [{"reason": "diverged: the loss is nan"}, {"reason": "rank 0: diverged: nan"}, {"status": "timed_out"}]
)
def test_trainings_that_diverged_or_were_stopped_missed_the_goal_and_leave_accuracy_without_verdict(tmp_path, cut):
    kept, lost = accurate(FULL, params="epochs=1 goal=0.94"), lost_row(trial=9, precision="fp16", **cut)
    given = [*kept, *(replace(row, precision="fp16") for row in kept), lost]
    (comparison,) = to_goal(tmp_path / "rows.csv", given).comparisons
    assert (comparison.verdict, comparison.ratio.value) == ("not judged", pytest.approx(7 / 6))
    for metric in ("accuracy", "loss"):
        records.append(tmp_path / f"{metric}.csv", [replace(row, loss=1.0) for row in given])
        (comparison,) = compare([tmp_path / f"{metric}.csv"], Question(metric=metric)).comparisons
        assert (comparison.verdict, comparison.subject.trials) == ("incomplete", 6)


@pytest.mark.parametrize(
    "changes", [{"mode": "sampled"}, {"data": "synthetic"}, {"params": "epochs=1 goal=0.0"}, {"params": "epochs=1"}]
)
def test_what_never_looked_for_a_goal_reached_none(tmp_path, changes):
    with pytest.raises(UserError, match="no ok row has it"):
        to_goal(tmp_path / "rows.csv", goals(6, 0, **changes))


@pytest.mark.parametrize(("metric", "gain"), [("seconds", "speedup"), ("rate", "speedup"), ("accuracy", "points")])
def test_a_gain_is_above_1_or_0_where_the_subject_is_better(tmp_path, metric, gain):
    """The subject has half the seconds, twice the rate and 40 points less accuracy."""
    path = tmp_path / "rows.csv"
    figures = {"samples_per_second": 250.0, "accuracy": 0.8}
    records.append(path, [row(trial=n, seconds=v, **figures) for n, v in enumerate(FAST)])
    mixed = {"precision": "fp16", "samples_per_second": 500.0, "accuracy": 0.4}
    records.append(path, [row(trial=n, seconds=v / 2, **mixed) for n, v in enumerate(FAST)])
    said = answer([path], Question(metric=metric))
    expected = pytest.approx(-40 if metric == "accuracy" else 2)
    (line,) = table_of(said, "ratios" if metric == "accuracy" else "speedups")
    assert (line["subject"], line["baseline"], line["on"]) == ("fp16", "fp32", "RTX 2080 Ti")
    assert line[gain]["value"] == expected
    (result,) = json.loads(rendered(said, "json"))["results"]
    assert (result["subject"], result["baseline"], result["value"]) == ("fp16", "fp32", expected)


def test_filters_and_two_columns_at_once(path):
    only = compare([path], Question(where=("precision=fp32", "card!=NVIDIA GeForce GTX 1080 Ti")))
    assert [(c.label, c.precision) for g in only.workloads for c in g.groups] == [("RTX 2080 Ti", "fp32")]
    assert compare([path], Question(where=("batch_size=64",))).comparisons
    for part in ("gtx 1080 ti", "1080"):  # as --baseline has it
        called = compare([path], Question(where=("precision=fp32", f"card!={part}")))
        assert [(c.label, c.precision) for g in called.workloads for c in g.groups] == [("RTX 2080 Ti", "fp32")]
    axes = {c.axis for c in compare([path], Question(by="precision,card")).comparisons}
    assert axes == {"card", "precision"}
    assert compare([path], Question(by="card,card")).axes == ("card",)


@pytest.mark.parametrize("name", ["CPU AMD EPYC 7763 64-Core", "cpu amd", "AMD EPYC 7763 64-Core Processor"])
def test_a_cpu_can_be_named_as_on_the_screen_or_as_in_the_row(tmp_path, name):
    records.append(tmp_path / "cpu.csv", rows(FAST, device="cpu", card="AMD EPYC 7763 64-Core Processor"))
    assert compare([tmp_path / "cpu.csv"], Question(metric="cost", prices={name: 1.2}, where=(f"card={name}",)))


def test_metrics_that_no_row_has_say_what_they_need(path):
    for name, words in (("energy", "telemetry"), ("accuracy", "full runs"), ("cost", "--price"), ("speed", "are ")):
        with pytest.raises(UserError, match=words):
            compare([path], Question(metric=name))
    assert "seconds" in METRICS


def test_markdown_and_csv_escape(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, rows(FAST, model="=a|<b>", card="[x](javascript:1)"))
    said = answer([path], Question())
    assert "<b>" not in rendered(said, "markdown")
    assert "](javascript" not in rendered(said, "markdown").replace("\\[x](", "")
    assert "\\|" in rendered(said, "markdown")
    assert "| --- | --- | --- | --- | ---: |" in rendered(said, "markdown"), "figures are at the right"
    assert ",'=a|<b>," in rendered(said, "csv")


def test_the_command_takes_them_all(path, prices):
    line = ["compare", str(path), "--metric", "cost", "--price", str(prices), "--where", "precision=fp32"]
    done = CliRunner().invoke(app, [*line, "--format", "json"])
    assert done.exit_code == 0, done.output
    assert [each["metric"] for each in [json.loads(done.stdout)]] == ["cost"]


@pytest.mark.parametrize(("where", "why"), [
    ("card", "write it as"), ("nothing=1", "no column nothing"), ("precison=fp32", "did you mean precision"),
    ("precision=fp23", "no row is left; did you mean fp32"), ("precision!=fp32", "no row is left; there is fp32"),
    ("card=RTX 2080Ti", "did you mean RTX 2080 Ti"), ("card=80", "it could be GTX 1080 Ti, RTX 2080 Ti"),
    ("model=vgg", "no row is left; there is resnet"), ("laps=x", "--where"),
])  # fmt: skip
def test_a_choice_of_rows_that_cannot_be_made_says_why(tmp_path, where, why):
    path = tmp_path / "rows.csv"
    records.append(
        path,
        [*rows(FAST), *rows([2 * seconds for seconds in FAST], card="NVIDIA GeForce GTX 1080 Ti", device_hash="b")],
    )
    with pytest.raises(UserError, match=why):
        compare([path], Question(where=(where,)))
