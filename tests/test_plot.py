"""Charts: a file of each kind, legible text, the same bytes every time, never a traceback."""

import json

import pandas as pd
import pytest
from gpubench.comparing import plot
from gpubench.comparing.lines import line_charts
from gpubench.comparing.table import figure_text
from matplotlib.figure import Figure
from rows import row, rows

from gpubench.analysis.compare import Question, compare
from gpubench.analysis.metrics import SECONDS
from gpubench.errors import UserError
from gpubench.rows import row as records
from gpubench.show import style

FAST = [100.0, 100.1, 100.2, 99.9, 99.8, 100.05]
OTHER = {"card": "NVIDIA GeForce GTX 1080 Ti", "device": "cuda:1", "device_hash": "bbbb"}


@pytest.fixture
def result(tmp_path):
    path = tmp_path / "rows.csv"
    slow = [value * 1.3 for value in FAST]
    lost = row(model="resnet152", status="out_of_memory", seconds=None, measured="")
    records.append(path, [*rows(FAST), *rows(slow, **OTHER), *rows(FAST, precision="fp16"), lost])
    return compare([path])


def texts(figure):
    from matplotlib.text import Text

    return [text for text in figure.findobj(Text) if text.get_text()]


def test_both_charts_in_both_formats_and_the_same_again(result, tmp_path):
    first, second = tmp_path / "one", tmp_path / "two"
    assert len(plot.draw(result, first)) == len(plot.draw(result, second)) == 4
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()


def test_values_ratios_and_lost_cases_are_written_out(result):
    (group,) = result.groups
    words = {text.get_text() for text in texts(plot.seconds_chart(group))}
    assert {"100.0  (1.00x)", "130.0  (1.30x)", "RTX 2080 Ti fp32: out of memory"} <= words
    words = {text.get_text() for text in texts(plot.speedup_chart(group))}
    assert {"1.30", "1.000  same"} <= words


def test_above_1_is_faster_in_every_panel(result):
    figure = plot.speedup_chart(result.groups[0])
    assert [axes.get_xlabel().partition("; ")[2] for axes in figure.axes] == [
        "above 1: faster than GTX 1080 Ti",
        "above 1: faster than fp32",
    ]
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert widths == [pytest.approx(1.3)]


def test_the_footer_says_what_the_figures_are(result):
    footer = " ".join(style.footer(result.groups[0], whiskers=True))
    for fact in ("epochs=1", "data=cifar100", "measured, 6 trial(s)", "95% interval", "batch: fixed", "torch 2.15.0"):
        assert fact in footer


def test_the_footer_names_whiskers_only_where_there_are_any(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [*rows([100.0, 101.0]), *rows([90.0, 91.0], precision="fp16")])
    (group,) = compare([path]).groups
    assert not any("whiskers" in text.get_text() for text in texts(plot.seconds_chart(group)))
    assert any("whiskers" in text.get_text() for text in texts(plot.speedup_chart(group)))


def test_a_whisker_far_beyond_the_bars_is_cut_and_has_an_arrow(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [*rows([100.0, 160.0]), *rows([90.0, 150.0], precision="fp16")])
    result = compare([path])
    assert result.comparisons[0].ratio.inverse.high > 4
    axes = plot.speedup_chart(result.groups[0]).axes[0]
    assert axes.get_xscale() == "linear"
    assert axes.get_xlim()[1] < 3
    assert ">" in [line.get_marker() for line in axes.lines]


def test_no_label_of_a_ratio_crosses_the_line_at_1(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [*rows([100.0]), *rows([104.0], precision="fp16"), *rows([80.0], precision="bf16")])
    records.append(path, rows([200.0], precision="fp16-pure"))
    axes = plot.speedup_chart(compare([path]).groups[0]).axes[0]
    assert sorted(round(text.xy[0], 2) for text in axes.texts) == [0.5, 1.0, 1.25]


def test_a_table_and_a_chart_write_a_figure_with_the_same_digits(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [*rows([54.0, 54.5, 55.2, 55.6, 60.0, 73.0]), *rows([80.0], precision="bf16")])
    result = compare([path])
    assert figure_text(result.metric, 55.4, (54.0, 73.0)) == "55"
    assert "55  (1.00x)" in {text.get_text() for text in texts(plot.seconds_chart(result.groups[0]))}


def test_a_model_with_one_case_is_relative_to_nothing(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, rows([100.0]))
    figure = plot.seconds_chart(compare([path]).groups[0])
    assert "100" in {text.get_text() for text in texts(figure)}
    assert figure.axes[0].get_xlabel() == "seconds of a whole run"


def test_a_ladder_is_drawn_once(tmp_path):
    path = tmp_path / "rows.csv"
    for number, name in ((2, "second"), (1, "first")):
        records.append(path, rows([100.0 / number], model=name, rung=number))
    drawn = plot.draw(compare([path]), tmp_path / "charts", kinds=("png",))
    assert [name.rpartition("/")[2] for name in drawn] == ["ladder-resnet.png"]


def test_every_text_can_be_read_on_a_phone(result):
    import matplotlib

    with matplotlib.rc_context(plot.STYLE):
        for figure in (plot.seconds_chart(result.groups[0]), plot.speedup_chart(result.groups[0])):
            assert figure.get_figwidth() * 150 == 1200
            assert min(text.get_fontsize() for text in texts(figure)) >= 11


def test_a_rate_is_drawn_as_a_rate(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [*rows(FAST, samples_per_second=500.0), *rows(FAST, samples_per_second=250.0, **OTHER)])
    result = compare([path], Question(metric="rate"))
    (group,) = result.groups
    axes = plot.seconds_chart(group, result.metric).axes[0]
    assert sorted(bar.get_width() for bar in axes.patches) == [250.0, 500.0]
    label = plot.speedup_chart(group, result.metric).axes[0].get_xlabel()
    assert label == "samples/s of the one shown / samples/s of GTX 1080 Ti; above 1: faster"


def test_processes_of_one_cpu_are_no_further_cpus(tmp_path):
    path = tmp_path / "rows.csv"
    cpu = rows([100.0], card="AMD EPYC", device="cpu", processes=2)
    records.append(path, [*cpu, *rows([50.0], processes=2)])
    labels = " ".join(t.get_text() for group in compare([path]).groups for t in texts(plot.seconds_chart(group)))
    assert "AMD EPYC (2 processes) fp32" in labels
    assert "2 x RTX 2080 Ti fp32" in labels


def test_thirty_cards_have_their_names_beside_their_bars(tmp_path):
    path = tmp_path / "rows.csv"
    for number in range(30):
        card = f"NVIDIA GeForce RTX {number} of a very long name indeed"
        records.append(path, rows(FAST, card=card, device_hash=str(number), session=str(number)))
    (group,) = compare([path]).groups
    figure = plot.seconds_chart(group)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == len(set(labels)) == 31
    assert not figure.legends
    assert max(map(len, labels)) <= plot.NAME_CHARACTERS


def test_far_apart_values_get_a_logarithmic_axis(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [*rows([1.0]), *rows([100.0], **OTHER)])
    (group,) = compare([path]).groups
    assert plot.seconds_chart(group).axes[0].get_xscale() == "log"
    assert plot.speedup_chart(group).axes[0].get_xscale() == "linear"


def test_a_folder_that_cannot_be_written_is_a_mistake_of_one_line(result, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--charts"):
        plot.draw(result, tmp_path / "file")


def test_nothing_ok_draws_nothing(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [row(status="failed", seconds=None, measured="")])
    assert plot.draw(compare([path]), tmp_path / "charts") == []


@pytest.mark.parametrize("limits", [(0.05, 0.42), (1, 9), (3, 40_000)])
def test_log_axes_have_plain_numbers(limits):
    """Never a power of ten, which is written in a markup that a chart does not read."""
    figure = Figure()
    axes = figure.subplots()
    axes.set_yscale("log")
    axes.set_ylim(*limits)
    style.plain_numbers(axes.yaxis)
    figure.draw_without_rendering()
    texts = [label.get_text() for label in [*axes.get_yticklabels(), *axes.get_yticklabels(minor=True)]]
    assert sum(map(bool, texts)) > 2
    assert not any("$" in text for text in texts)


def test_a_million_has_no_exponent():
    figure = Figure()
    axes = figure.subplots()
    axes.set_xlim(0, 1.2e6)
    style.plain_numbers(axes.xaxis)
    figure.draw_without_rendering()
    assert {"800,000", "1,000,000"} <= {label.get_text() for label in axes.get_xticklabels()}


def roofline(tmp_path, models):
    path = tmp_path / "rows.csv"
    counted = {"flops_per_sample": 2e9, "bytes_per_sample": 1e8}
    roof = {"measured_peak_flops": 4e12, "measured_bandwidth_bytes_per_second": 1e11}
    for at, model in enumerate(models):
        for precision in ("fp32", "bf16"):
            rate = {"samples_per_second": 500.0 + at}
            records.append(path, [row(model=model, precision=precision, **counted, **roof, **rate)])
    (group,) = compare([path]).groups
    ((_, figure),) = line_charts(group, None, SECONDS)
    return figure


def test_a_roofline_shows_each_model_in_the_colour_of_its_roof(tmp_path):
    figure = roofline(tmp_path, ["resnet101", "resnet34", "resnet152", "resnet50", "resnet18"])
    axes = figure.axes[0]
    points = [line for line in axes.lines if line.get_linestyle() == "None"]
    roofs = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [len(line.get_xdata()) for line in points] == [5, 5]
    assert [line.get_color() for line in points] == [line.get_color() for line in roofs]
    names = [text.get_text() for text in axes.texts]
    assert names == ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"] * 2
    assert not any("first" in text.get_text() for text in figure.texts)


def test_a_roofline_of_many_shows_the_first_models_and_says_so(tmp_path):
    figure = roofline(tmp_path, [f"net{number}" for number in range(12, 0, -1)])
    assert any("(first 16 of 24)" in text.get_text() for text in figure.texts)
    assert {text.get_text() for text in figure.axes[0].texts} == {f"net{number}" for number in range(1, 9)}


def test_accuracies_are_drawn_the_way_their_label_says(tmp_path):
    path = tmp_path / "rows.csv"
    for precision, value in (("fp32", 0.9), ("fp16", 0.95)):
        records.append(path, [row(trial=n, precision=precision, accuracy=value) for n in range(6)])
    result = compare([path], Question(metric="accuracy"))
    (group,) = result.groups
    figure = plot.speedup_chart(group, result.metric)
    assert figure.axes[0].get_xlabel() == "accuracy of the one shown / accuracy of fp32; above 1: better"
    assert [bar.get_x() + bar.get_width() for bar in figure.axes[0].patches] == [pytest.approx(0.95 / 0.9)]
    words = {text.get_text() for text in texts(plot.seconds_chart(group, result.metric))}
    assert {"0.950  (1.00x)", "0.900  (1.06x)"} <= words


def test_long_runs_are_drawn_in_hours(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [*rows([3600.0]), *rows([7201.0], **OTHER)])
    (group,) = compare([path]).groups
    figure = plot.seconds_chart(group)
    assert [bar.get_width() for bar in figure.axes[0].patches] == [pytest.approx(2.0003, abs=1e-4), 1.0]
    assert figure.axes[0].get_xlabel().startswith("hours of a whole run")
    assert "1.00  (1.00x)" in {text.get_text() for text in texts(figure)}


def test_cards_are_counted_where_a_case_has_several(tmp_path):
    records.append(tmp_path / "a.csv", rows(FAST, processes=8))
    (group,) = compare([tmp_path / "a.csv"]).groups
    assert "8 x RTX 2080 Ti fp32" in {text.get_text() for text in texts(plot.seconds_chart(group))}


def test_numbers_of_close_batches_are_not_written_over_each_other(tmp_path):
    curve = json.dumps([[size, 100.0, 1] for size in (256, 512, 768, 1024, 1536, 2048)])
    records.append(tmp_path / "a.csv", [row(batch_policy="fastest", batch_curve=curve)])
    (group,) = compare([tmp_path / "a.csv"]).groups
    texts_of_rows = pd.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False)
    ((_, figure),) = line_charts(group, texts_of_rows, SECONDS)
    assert list(figure.axes[0].get_xticks()) == [256, 512, 1024, 2048]
