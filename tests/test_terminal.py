"""What a reader sees: tables no wider than the terminal, numbers whole at any width, digits that mean something."""

import re

import answers
import pytest
from facts import lacking
from rich.cells import cell_len
from rows import rows

from gpubench.show.numbers import number, significant
from gpubench.show.terminal import everything, screen, table_lines
from gpubench.studies.section import Column, Estimate, Table

OTHER = {"card": "NVIDIA GeForce GTX 1080 Ti", "device": "cuda:1", "device_hash": "bbbb"}


def answered(folder, *groups, **question):
    return answers.answered(folder, [each for group in groups for each in group], **question)


def printed(tmp_path, *groups, width=200, **options):
    answer = answered(tmp_path, *groups, **options)
    lines = everything(answer, width)
    assert max(map(cell_len, lines)) < width
    return "\n".join([*screen(answer), *lines])


def drawn(columns, *lines, width=79):
    printed = table_lines(Table("cases", tuple(columns), lines), width)
    assert max(map(cell_len, printed)) <= width
    return printed


MODEL, CARD, POLICY = Column("model"), Column("card"), Column("policy")
SECONDS, SHARE, TRIALS = Column("seconds", "s"), Column("accuracy", "share", places=2), Column("trials", "count")
NOTES = Column("notes", note=True)


def test_a_table_by_hand():
    columns = MODEL, CARD, POLICY, Column("data"), SECONDS, SHARE, TRIALS, NOTES
    lines = drawn(
        columns,
        ("resnet18", "A100", "fixed", "cifar100", Estimate(12.3, 12.2, 12.4), 0.5, 6, "throttled"),
        ("resnet152", "H100", "fixed", "cifar100", 1234.0, None, 12, ""),
        ("x", "H100", "fixed", "cifar100", "timed out", 0.25, 1, "throttled"),
        ("y", "H100", "fixed", "cifar100", None, None, None, "2 of 3 shared"),
    )
    assert lines[0] == "cases (in all lines: policy fixed, data cifar100)"
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines[1:6]]
    assert cells == [
        ["model", "card", "seconds", "95% interval", "accuracy", "trials"],
        ["resnet18 (a)", "A100", "12.30", "12.20 to 12.40", "50.00%", "6"],
        ["resnet152", "H100", "1,234", "12"],
        ["x (a)", "H100", "timed out", "25.00%", "1"],
        ["y (b)", "H100"],
    ]
    assert lines[6:] == ["  a: throttled", "  b: 2 of 3 shared"]
    assert lines[2].index("12.30") + len("12.30") == lines[3].index("1,234") + len("1,234")  # figures to the right
    assert lines[2].index("A100") == lines[3].index("H100")  # texts to the left


@pytest.mark.parametrize(("width", "length"), [(40, 10_000_000), *((width, 10_000) for width in range(41, 60))])
def test_a_note_is_as_wide_as_the_table_may_be(width, length):
    drawn((MODEL, SECONDS, NOTES), *((f"m{at}", 1.0, f"{at} " + "ab " * 60) for at in range(30)), width=width)
    assert drawn((MODEL, SECONDS, NOTES), ("m", 1.0, "x" * length), width=width)[-1].endswith("xx..")


def test_a_table_that_is_too_wide_is_parted_and_repeats_its_first_column():
    columns = MODEL, *(Column(f"figure {at}", "s") for at in range(12))
    lines = [(f"m{row}", *(1000.0 * row + at for at in range(1, 13))) for row in range(1, 4)]
    found = drawn(columns, *lines, width=60)
    heads = [line.split() for line in found if line.split()[0] == "model"]
    assert len(heads) > 1
    assert [name for head in heads for name in " ".join(head[1:]).replace("figure ", "").split()] == [
        str(at) for at in range(12)
    ]
    for at, line in enumerate(lines, start=1):
        parts = [part.split()[1:] for part in found if part.split()[0] == f"m{at}"]
        assert [float(text.replace(",", "")) for part in parts for text in part] == list(line[1:])


@pytest.mark.parametrize("width", [39, 59, 79, 119])
def test_of_texts_that_are_too_long_the_middle_goes_and_figures_stay_whole(width):
    name = "a-very-long-name-" * 4 + "end"
    lines = drawn((MODEL, CARD, SECONDS, TRIALS), (name, name, 12345.0, 1000), ("b", "B", 23456.0, 2000), width=width)
    text = "\n".join(lines)
    for figure in ("12,345", "23,456", "1,000", "2,000"):
        assert figure in text.split()
    assert "end" in text


def test_digits_follow_the_interval():
    expected = {
        (12794.0, None): "12,794", (145.148, None): "145", (5.0, None): "5.00", (0.00123, None): "0.00123",
        (145.148, 0.05): "145.15", (145.148, 20.0): "145", (145.148, 1e-9): "145.148",
        (0.0, None): "0", (1e-12, None): "1e-12",
    }  # fmt: skip
    assert {(seconds, half_width): significant(seconds, half_width) for seconds, half_width in expected} == expected


@pytest.mark.parametrize(("value", "column", "half_width", "text"), [
    (0.9, Column("a", "share"), None, "90.0%"), (0.90125, Column("a", "share", places=2), None, "90.12%"),
    (1.3, Column("a", "ratio"), None, "1.30"), (1.3004, Column("a", "ratio"), 0.019, "1.300"),
    (1.3004, Column("a", "ratio"), 0.02, "1.30"), (0.0123, Column("a", "ratio"), None, "0.012"),
    (3 * 2**29, Column("a", "bytes"), None, "1.5 GiB"), (5 * 2**40, Column("a", "bytes"), None, "5120 GiB"),
    (12345.0, Column("a", "count"), None, "12,345"), (1234.5678, Column("a", "points", places=2), None, "1,234.57"),
    (float("nan"), Column("a", "s"), None, ""), (float("inf"), Column("a", "ratio"), None, ""),
    (0.0123, Column("p", "p"), None, "0.0123"), (1.0, Column("p", "p"), None, "1.00"),
    (3e-9, Column("p", "p"), None, "<0.0001"),
])  # fmt: skip
def test_a_figure_in_its_unit(value, column, half_width, text):
    assert number(value, column, half_width) == text


def test_causes_and_marks_of_both_sides_are_said_once(tmp_path):
    card, models = {"card": "NVIDIA GeForce GTX 1080 Ti"}, ("resnet34", "resnet18")
    groups = [rows([100.0], **card, model=model) for model in models]
    groups += [rows([110.0], **card, model=model, precision="fp16") for model in models]
    lines = [line for line in printed(tmp_path, *groups).splitlines() if "not faster" in line]
    assert len(lines) == 1
    assert lacking(lines[0], "resnet18", "resnet34", "GTX 1080 Ti", "fp16", "fp32") == []
    shared = rows([200.0, 201.0], marks="shared", session="s2", **card)
    text = printed(tmp_path, rows([100.0, 101.0], marks="throttled"), shared)
    speedups = text.partition("\nspeedups")[2].partition("\n\n")[0]
    assert "RTX 2080 Ti: 2 of 2 throttled" in speedups
    assert "GTX 1080 Ti: 2 of 2 shared" in speedups


@pytest.mark.parametrize("width", [20, 39, 50, 60, 79])
def test_the_screen_is_as_wide_as_the_terminal(tmp_path, width, monkeypatch):
    result = answered(tmp_path, rows([100.0] * 6), rows([130.0] * 6, **OTHER))
    lines = screen(result, width=width)
    assert max(map(cell_len, lines)) <= width
    assert " ".join(result.headline.split()) in " ".join(lines)
    monkeypatch.setenv("COLUMNS", str(width + 1 if width > 20 else 1))  # lines have at least 20 characters
    assert screen(result) == lines
    models = screen(answered(tmp_path, rows([100.0] * 6), rows([50.0] * 6, precision="bf16")), width=79)
    assert ["fp32", "bf16", "speedup"] in [line.split() for line in models], "one card is a table of its models, too"
