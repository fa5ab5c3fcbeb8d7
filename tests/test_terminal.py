"""What a reader sees: numbers whole at any width, digits that mean something, no silent hole."""

import io

import pytest
from rich.console import Console
from rows import row, rows

from gpubench.analysis.compare import compare
from gpubench.comparing.table import print_result, relative_texts
from gpubench.rows import row as records
from gpubench.show.numbers import rate_text, seconds_text

OTHER = {"card": "NVIDIA GeForce GTX 1080 Ti", "device": "cuda:1", "device_hash": "bbbb"}


def printed(tmp_path, *groups, width=200):
    path = tmp_path / "rows.csv"
    for group in groups:
        records.append(path, group)
    out = io.StringIO()
    print_result(compare([path]), Console(file=out, width=width, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "half_width", "text"),
    [
        (12794.0, None, "12,794"),
        (145.148, None, "145"),
        (5.0, None, "5.00"),
        (0.00123, None, "0.00123"),
        (145.148, 0.05, "145.15"),
        (145.148, 20.0, "145"),
        (145.148, 1e-9, "145.148"),
    ],
)
def test_digits_follow_the_interval(seconds, half_width, text):
    assert seconds_text(seconds, half_width) == text


def test_a_rate_has_three_digits(tmp_path):
    assert [rate_text(rate) for rate in (3.42, 58.16, 2356.0, 0.0, float("nan"))] == ["3.42", "58.2", "2,356", "", ""]
    assert "3.42" in printed(tmp_path, rows([100.0], samples_per_second=3.42))


def test_models_are_in_the_order_of_their_numbers_or_rungs(tmp_path):
    for names, rungs in (
        (["resnet18", "resnet34", "resnet101"], False),
        (["net9", "net10", "net100"], False),
        (["z", "y", "x1"], True),
        (["lstm", "gru"], False),  # no numbers: as in the file
    ):
        folder = tmp_path / names[0]
        folder.mkdir()
        given = [rows([100.0], model=m, rung=n if rungs else None) for n, m in enumerate(names)]
        lost = [row(model=names[0], precision="tf32", status="failed", seconds=None, measured="")]
        text = printed(folder, *(given if names[0] == "lstm" else given[::-1]), lost)
        assert [line.split()[0] for line in text.splitlines() if "fixed" in line and "fp32" in line] == names


@pytest.mark.parametrize(
    ("own", "times"),
    [
        ([{}, {"model": "resnet34"}], []),
        ([{}, {"precision": "fp16"}, {"model": "resnet34"}], ["1.00", "2.00"]),
        ([{"model": "x", "rung": 0}, {"model": "y", "rung": 1}], ["1.00", "2.00"]),
        ([{"suite": "tricks", "model": "plain"}, {"suite": "tricks", "model": "mixed"}], ["1.00", "2.00"]),
    ],
)
def test_a_case_is_relative_to_what_does_the_same(tmp_path, own, times):
    path = tmp_path / "rows.csv"
    for number, changes in enumerate(own):
        records.append(path, rows([100.0 * (number + 1)], **changes))
    cells = [cell for group in compare([path]).groups for cell in group.cells]
    assert sorted(relative_texts(cells).values()) == times


def test_a_cause_is_said_once_for_all_models(tmp_path):
    groups = []
    for model in ("resnet34", "resnet18"):
        for precision, seconds in (("fp32", 100.0), ("fp16", 110.0)):
            card = {"card": "NVIDIA GeForce GTX 1080 Ti", "model": model, "precision": precision}
            groups.append(rows([seconds], **card))
    lines = [line for line in printed(tmp_path, *groups).splitlines() if "not faster" in line]
    assert len(lines) == 1
    assert lines[0].strip().startswith("resnet18, resnet34 on GTX 1080 Ti: fp16 is not faster than fp32")


def test_a_ladder_is_printed_once_with_its_marks(tmp_path):
    first = rows([100.0, 101.0], model="first", rung=1, marks="throttled", samples_per_second=3.42)
    text = printed(tmp_path, first, rows([50.0], model="second", rung=2))
    (line,) = [line for line in text.splitlines() if line.strip().startswith("first")]
    assert "2 of 2 throttled" in line
    assert "3.42" in line
    assert "relative" not in text


def test_what_is_the_same_is_not_repeated_in_a_title(tmp_path):
    text = printed(tmp_path, rows([100.0], params="published", mode="published", source="s"))
    assert "resnet, published, data=cifar100, s" in text


def test_means_are_per_precision(tmp_path):
    groups = []
    for model in ("resnet18", "resnet34"):
        for precision, seconds in (("fp32", 80.0), ("fp16", 125.0)):
            groups.append(rows([100.0], model=model, precision=precision))
            groups.append(rows([seconds], model=model, precision=precision, **OTHER))
    text = printed(tmp_path, *groups)
    assert "geometric mean speedup, RTX 2080 Ti over GTX 1080 Ti, fp32: 0.80, 2 of 2 cases" in text
    assert "geometric mean speedup, RTX 2080 Ti over GTX 1080 Ti, fp16: 1.25, 2 of 2 cases" in text


def test_a_precision_without_result_is_named_as_the_cause(tmp_path):
    lost = row(precision="fp32", status="timed_out", reason="3 s", seconds=None, measured="")
    text = printed(tmp_path, [lost], rows([100.0], precision="bf16"))
    assert "Nothing here can be compared: fp32 has no result (timed out)." in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_nothing_is_cut_in_a_narrow_terminal(tmp_path, width):
    more = {"model": "resnet152", "batch_policy": "max-fp32", "batch_size": 1024}
    text = printed(tmp_path, rows([12345.0] * 6, **more), rows([23456.0] * 6, **OTHER, **more), width=width)
    assert "…" not in text
    for number in ("12,345", "23,456", "1024 (max-fp32)", "1.90", "resnet152", "GTX 1080 Ti"):
        assert number in text


def test_a_case_without_an_ok_trial_is_a_line_with_its_status(tmp_path):
    bad = row(precision="tf32", status="unsupported", reason="a CPU has no TF32", seconds=None, measured="")
    text = printed(tmp_path, rows([100.0]), [bad])
    line = next(line for line in text.splitlines() if "tf32" in line)
    assert "unsupported" in line
    assert "a CPU has no TF32" in line


def test_columns_with_nothing_in_them_are_left_out(tmp_path):
    text = printed(tmp_path, rows([100.0]))
    assert "accuracy" not in text
    assert "95%" not in text
    assert "50.00%" in printed(tmp_path, rows([100.0], accuracy=0.5, session="s2"))


def test_marked_trials_are_said_and_counted_in(tmp_path):
    trials = [row(trial=0, marks="throttled shared"), row(trial=1, marks="throttled"), row(trial=2)]
    text = printed(tmp_path, trials)
    assert "1 of 3 shared; 2 of 3 throttled" in text


def test_a_ratio_names_the_marks_of_both_its_sides(tmp_path):
    other = {"card": "NVIDIA GeForce GTX 1080 Ti", "session": "s2"}
    text = printed(tmp_path, rows([100.0, 101.0], marks="throttled"), rows([200.0, 201.0], **other))
    (line,) = [line for line in text.splitlines() if " over " in line]
    assert "RTX 2080 Ti: 2 of 2 throttled" in line


def test_unsteady_and_projected_are_said(tmp_path):
    trials = [row(measured="projected", steady="unsteady: 30 s", trial=0), row(measured="projected", trial=1)]
    assert "projected; 1 of 2 unsteady" in printed(tmp_path, trials)


def test_what_cannot_be_compared_names_the_column_asked_for(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    records.append(path, rows([100.0]))
    print_result(compare([path], Question(by="torch")))
    assert "no two rows differ in torch alone" in capsys.readouterr().out
    print_result(compare([path]))
    assert "no two rows differ in card or precision alone" in capsys.readouterr().out


def test_devices_of_two_specimens_name_both(tmp_path):
    path = tmp_path / "two.csv"
    records.append(path, rows([100.0] * 6))
    records.append(path, rows([150.0] * 6, device="cuda:1", device_hash="bbbb"))
    out = io.StringIO()
    print_result(compare([path], Question(by="device")), Console(file=out, width=200, highlight=False))
    assert "cuda:0 over cuda:1, fp32 on RTX 2080 Ti #aaaa and RTX 2080 Ti #bbbb" in " ".join(out.getvalue().split())
