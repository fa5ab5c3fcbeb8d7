"""Charts: a file of each kind, legible text, the same bytes every time, never a traceback."""

import pytest
from matplotlib.figure import Figure
from rows import row, rows

from gpubench import records
from gpubench.comparing import plot, style
from gpubench.comparing.compare import Question, answer, compare
from gpubench.errors import UserError

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
    assert {"100  (1.00x)", "130  (1.30x)", "RTX 2080 Ti fp32: out of memory"} <= words
    words = {text.get_text() for text in texts(plot.speedup_chart(group))}
    assert {"1.30", "1.000  same"} <= words
    assert any("above 1: slower than RTX 2080 Ti" in word for word in words)


def test_the_footer_says_what_the_figures_are(result):
    footer = " ".join(style.footer(result.groups[0]))
    for fact in ("epochs=1", "data=cifar100", "measured, 6 trial(s)", "95% interval", "batch: fixed", "torch 2.15.0"):
        assert fact in footer


def test_every_text_can_be_read_on_a_phone(result):
    import matplotlib

    with matplotlib.rc_context(plot.STYLE):
        for figure in (plot.seconds_chart(result.groups[0]), plot.speedup_chart(result.groups[0])):
            assert figure.get_figwidth() * 150 == 1200
            assert min(text.get_fontsize() for text in texts(figure)) >= 11


def test_a_rate_is_drawn_as_a_rate(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [*rows(FAST, samples_per_second=500.0), *rows(FAST, samples_per_second=250.0, **OTHER)])
    result = answer([path], Question(metric="rate"))
    (group,) = result.groups
    axes = plot.seconds_chart(group, result.metric).axes[0]
    assert sorted(bar.get_width() for bar in axes.patches) == [250.0, 500.0]
    label = plot.speedup_chart(group, result.metric).axes[0].get_xlabel()
    assert label == "samples/s of RTX 2080 Ti / samples/s of the one shown; above 1: slower"


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


def test_accuracies_are_drawn_the_way_their_label_says(tmp_path):
    path = tmp_path / "rows.csv"
    for precision, value in (("fp32", 0.9), ("fp16", 0.95)):
        records.append(path, [row(trial=n, precision=precision, accuracy=value) for n in range(6)])
    result = answer([path], Question(metric="accuracy"))
    (group,) = result.groups
    figure = plot.speedup_chart(group, result.metric)
    assert figure.axes[0].get_xlabel() == "accuracy / accuracy of fp32; above 1: better"
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
