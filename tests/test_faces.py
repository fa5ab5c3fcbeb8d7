"""Every study in every face: each finding and each figure of the published results is in all of them."""

import csv
import html
import io
import json
import math
import re
from pathlib import Path

import made_answers as made
import pytest
from rows import row

from gpubench.rows import write as records
from gpubench.show import charts, formats, style, terminal
from gpubench.show.numbers import cell_text
from gpubench.show.page import page_of
from gpubench.studies.answer import STUDIES, answer
from gpubench.studies.section import Estimate, flat

RESULTS = Path(__file__).parents[1] / "results"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The answer of all published results, and of a training in stages."""
    path = tmp_path_factory.mktemp("rows") / "stages.csv"
    stages = [["size", "hours"], [128, 1.25], [224, 2.5]]
    records.append(path, [row(suite="mine", model="net", seconds=13500.0, table=json.dumps(stages))])
    return answer([RESULTS, path], keep=True)


def words(text):
    """One line, so that a break is a space."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def faces(whole):
    """The answer in each face that is text."""
    page = page_of(whole)
    assert len(page.encode()) < 300_000
    page = html.unescape(re.sub(r"<[^>]+>", " ", page))
    unescaped = html.unescape(re.sub(r"\\([|`\[])", r"\1", formats.rendered(whole, "markdown")))
    return {
        "terminal": words(" ".join(terminal.everything(whole, 80)).replace("- ", " ")),
        "markdown": words(unescaped),
        "csv": words(formats.rendered(whole, "csv").replace('""', '"')),
        "json": words(json.dumps(json.loads(formats.rendered(whole, "json")), ensure_ascii=False)),
        "page": words(page),
    }


def test_every_study_has_a_section_and_json_counts_what_gave_nothing_to_compare(whole):
    assert {section.study for section in whole.sections} == set(STUDIES)
    told = json.loads(formats.rendered(made.answer(rows=9, about=8, failed=5, stopped=3, missed=2), "json"))
    assert [told[name] for name in ("rows", "about", "failed", "stopped", "missed")] == [9, 8, 5, 3, 2]


READ = {
    "8 files, 1,284 rows. 3 trials not finished. 2 without a usable time. 8 runs missed the goal.": {},
    "7 of 1,284 rows in 8 files.": {"about": 7},
    "1,284 rows. 3 trials not finished. 2 without a usable time. 8 runs missed the goal.": {"files": 0},
    "8 files, no rows.": {"rows": 0},
    "": {"rows": 0, "files": 0},
}


@pytest.mark.parametrize(("said", "changes"), READ.items())
@pytest.mark.parametrize("face", ["terminal", "markdown", "page"])
def test_faces_for_readers_say_alike_what_was_read(face, said, changes):
    counts = {"files": 8, "rows": 1284, "failed": 5, "stopped": 3, "missed": 8}
    told = made.answer(made.result("Found"), sections=[made.section("First")], **{**counts, **changes})
    drawn = {
        "terminal": lambda: " ".join(terminal.screen(told)),
        "markdown": lambda: formats.rendered(told, "markdown"),
        "page": lambda: page_of(told),
    }[face]()
    assert said in words(drawn)
    for untrue in ("0 files", "no rows"):
        assert (untrue in words(drawn)) == (untrue in said)


@pytest.mark.parametrize("face", ["terminal", "markdown", "csv", "json", "page"])
def test_a_face_has_every_result(whole, faces, face):
    missing = [
        each.sentence
        for each in whole.results
        if words(each.sentence.replace("- ", " ")) not in faces[face].replace("- ", " ")
    ]
    assert missing == []


@pytest.mark.parametrize("face", ["terminal", "markdown", "page"])
def test_a_face_for_readers_has_every_figure_as_it_is_read(whole, faces, face):
    figures = {
        cell_text(value, column)
        for section in whole.sections
        for table in section.tables
        for line in table.lines
        for value, column in zip(line, table.columns, strict=True)
        if isinstance(value, int | float | Estimate)
    }
    assert len(figures) > 300
    assert [figure for figure in figures if figure not in faces[face]] == []


def test_json_and_csv_have_every_figure_to_its_last_digit(whole):
    given = json.loads(formats.rendered(whole, "json"))
    lines = formats.rendered(whole, "csv")
    results = [line for line in csv.DictReader(io.StringIO(lines)) if line["table"] == "results"]
    for result, seen in zip(whole.results, results, strict=True):
        low, high = result.interval or ("", "")
        assert (seen["low"], seen["high"]) == (str(low), str(high))
        assert (seen["subject"], seen["baseline"]) == (result.subject, result.baseline)
    assert given["version"] == formats.JSON_VERSION
    for section, found in zip(whole.sections, given["sections"], strict=True):
        for table, again in zip(section.tables, found["tables"], strict=True):
            for line, texts in zip(table.lines, again["lines"], strict=True):
                for value, seen in zip(line, texts, strict=True):
                    if isinstance(value, Estimate):
                        assert (seen["value"], seen["low"]) == (pytest.approx(value.value, rel=1e-15), value.low)
                    elif isinstance(value, float) and math.isfinite(value):
                        assert seen == value
            for line in flat(table)[1]:
                assert all(repr(value) in lines for value in line if isinstance(value, float) and math.isfinite(value))


def test_a_picture_says_its_result_and_its_figures(whole):
    import matplotlib

    drawn = [(each, chart) for each in whole.results for chart in charts.worth_drawing(each.charts)]
    assert len(drawn) > 10
    with style.style("light"):
        for each, chart in drawn[:8]:
            figure = charts.figure_of(chart)
            said = words(" ".join(found.get_text() for found in figure.findobj(matplotlib.text.Text)))
            assert words(each.said) in said
            assert all(group.text in said for group in chart.groups)


def test_one_direction_everywhere(whole):
    """Above 1 the left one is better: in results, in tables and in charts."""
    (cards,) = [each for each in whole.results if each.subject == "RTX 2080 Ti" and each.precision == "fp32"]
    assert cards.value == pytest.approx(1.30, abs=0.005)
    (section,) = [each for each in whole.sections if cards in each.results]
    (table,) = [each for each in section.tables if each.name == "speedups"]
    ratios = [line[5].value for line in table.lines if line[1].startswith("RTX 2080 Ti") and line[3] == "fp32"]
    assert ratios == [part.value for part in cards.parts]
    (chart,) = [each for each in cards.charts if each.reference]
    assert [group.bars[0].value for group in chart.groups] == [*ratios, cards.value]
