"""Other figures than seconds, prices, filters, and the forms a table can take."""

import csv
import io
import json

import pytest
from rows import row, rows
from typer.testing import CliRunner

from gpubench import records
from gpubench.cli import app
from gpubench.comparing.compare import Question, answer
from gpubench.comparing.formats import FORMATS, rendered
from gpubench.comparing.questions import METRICS, read_prices
from gpubench.errors import UserError

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


def test_prices(prices, tmp_path):
    assert read_prices(prices) == {"RTX 2080 Ti": 0.36, "1080 Ti": pytest.approx(0.1)}
    for wrong in ('["x"]\nhourly = 0', '["x"]\nprice = 1', "x = 1", '["x"]\nprice = 1\nyears = 0', "nonsense"):
        (tmp_path / "wrong.toml").write_text(wrong)
        with pytest.raises(UserError, match="--price"):
            read_prices(tmp_path / "wrong.toml")


def medians(path, metric, prices=None):
    result = answer([path], Question(metric=metric, prices=prices))
    cells = {(c.label, c.precision): c for group in result.groups for c in group.cells}
    return {key: result.metric.shown(cell.median) for key, cell in cells.items()}


def test_each_metric_in_its_own_unit(path, prices):
    assert medians(path, "rate")[("GTX 1080 Ti", "fp32")] == 250
    assert medians(path, "memory")[("RTX 2080 Ti", "fp32")] == 2
    cost = medians(path, "cost", prices)
    assert cost[("RTX 2080 Ti", "fp32")] == pytest.approx(0.01, rel=1e-3)
    assert cost[("GTX 1080 Ti", "fp32")] == pytest.approx(0.1 * 200 / 3600, rel=1e-3)
    assert medians(path, "cost-per-epoch", prices)[("RTX 2080 Ti", "fp32")] == pytest.approx(0.001, rel=1e-3)
    assert medians(path, "value", prices)[("GTX 1080 Ti", "fp32")] == pytest.approx(250 * 36000, rel=1e-6)
    assert medians(path, "batch")[("GTX 1080 Ti", "fp32")] == 64


def test_the_best_card_per_dollar_comes_first(path, prices):
    result = answer([path], Question(metric="value", prices=prices, by="card"))
    (comparison,) = [c for c in result.comparisons if c.axis == "card"]
    assert comparison.other_name == "GTX 1080 Ti"
    assert comparison.ratio.value == pytest.approx(0.36 / 0.1 / 2, rel=1e-3)


def test_a_rate_is_faster_where_it_is_higher(tmp_path):
    path = tmp_path / "rows.csv"
    fast = [row(trial=n, samples_per_second=v * 3, precision="fp16") for n, v in enumerate(FAST)]
    records.append(path, [*[row(trial=n, samples_per_second=v) for n, v in enumerate(FAST)], *fast])
    (comparison,) = answer([path], Question(metric="rate")).comparisons
    assert comparison.verdict == "faster"


def accuracies(path, mixed):
    full = [0.900, 0.902, 0.898, 0.901, 0.899, 0.900]
    ours = [row(trial=n, accuracy=v) for n, v in enumerate(full)]
    theirs = [row(trial=n, accuracy=v + mixed, precision="fp16") for n, v in enumerate(full)]
    records.append(path, [*ours, *theirs])
    (comparison,) = answer([path], Question(metric="accuracy")).comparisons
    return comparison


@pytest.mark.parametrize(("mixed", "verdict"), [(0.001, "non-inferior"), (-0.02, "inferior"), (-0.004, "unsure")])
def test_is_mixed_precision_as_accurate_within_half_a_point(tmp_path, mixed, verdict):
    comparison = accuracies(tmp_path / "rows.csv", mixed)
    assert comparison.verdict == verdict
    assert any(f"{mixed * 100:+.2f} points" in note for note in comparison.notes)


def test_filters(path):
    only = answer([path], Question(where=("precision=fp32", "card!=NVIDIA GeForce GTX 1080 Ti")))
    assert [(c.label, c.precision) for g in only.groups for c in g.cells] == [("RTX 2080 Ti", "fp32")]
    assert answer([path], Question(where=("batch_size=64",))).comparisons
    for wrong in ("precision", "nothing=1", "card=none", "laps=x"):
        with pytest.raises(UserError, match="--where"):
            answer([path], Question(where=(wrong,)))


def test_two_columns_at_once(path):
    axes = {c.axis for c in answer([path], Question(by="precision,card")).comparisons}
    assert axes == {"card", "precision"}


def test_metrics_that_no_row_has_say_what_they_need(path):
    for name, words in (("energy", "telemetry"), ("accuracy", "full runs"), ("cost", "--price"), ("speed", "there is")):
        with pytest.raises(UserError, match=words):
            answer([path], Question(metric=name))
    assert "seconds" in METRICS


def test_every_format_says_the_same(path):
    result = answer([path], Question())
    texts = {name: rendered(result, name) for name in FORMATS}
    whole = json.loads(texts["json"])
    assert whole["version"] == 1
    cell = whole["groups"][0]["cells"][0]
    assert {"model", "card", "precision", "median", "low", "high", "values", "trials", "status"} <= set(cell)
    assert sorted(cell["values"])[0] <= cell["median"] <= sorted(cell["values"])[-1]
    table = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert len(table) == 3
    assert float(table[0]["median"]) == cell["median"]
    assert texts["markdown"].count("| --- |") >= 2
    assert "1.00 |" in texts["hyperfine"]
    assert "vs base" in texts["benchstat"]


def test_markdown_and_csv_escape(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, rows(FAST, model="=a|<b>", card="[x](javascript:1)"))
    result = answer([path], Question())
    assert "<b>" not in rendered(result, "markdown")
    assert "\\|" in rendered(result, "markdown")
    assert ",'=a|<b>," in rendered(result, "csv")


def test_the_command_takes_them_all(path, prices, tmp_path):
    line = ["compare", str(path), "--metric", "cost", "--price", str(prices), "--where", "precision=fp32"]
    done = CliRunner().invoke(
        app, [*line, "--format", "json", "--charts", str(tmp_path / "c"), "--chart-format", "png,pdf"]
    )
    assert done.exit_code == 0, done.output
    assert {p.name for p in (tmp_path / "c").iterdir()} == {
        "cost-resnet.png", "cost-resnet.pdf", "speedup-resnet.png", "speedup-resnet.pdf",
    }  # fmt: skip
    for wrong in (["--theme", "blue"], ["--chart-format", "bmp"], ["--format", "word"], ["--metric", "joy"]):
        assert CliRunner().invoke(app, ["compare", str(path), *wrong]).exit_code == 2
