"""An answer as a whole: which rows stand behind what, one part of it alone, and names that tell all apart."""

import csv
from collections import Counter
from dataclasses import replace

import pytest
from facts import lacking
from made_answers import pairs, ratios
from rows import row, rows

from gpubench.analysis.compare import Question
from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.rows.row import COLUMNS, to_cells
from gpubench.show.numbers import read_of
from gpubench.studies.answer import _named, answer, only

SLOW = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]
FAST = [seconds / 2 for seconds in SLOW]
NAMES = ("card", "precision", "model", "session", "status", "seconds")
TI = {"card": "NVIDIA GeForce GTX 1080 Ti", "device_hash": "bbbb"}
COUNTED = {
    "flops_per_sample": 1e9, "bytes_per_sample": 1e7, "samples_per_second": 1000.0, "measured_peak_flops": 1e13,
    "measured_bandwidth_bytes_per_second": 5e11, "data_stall": 0.02, "ops_per_step": 500.0, "op_overhead_seconds": 1e-6,
}  # fmt: skip


def answered(tmp_path, *groups, **options):
    for number, group in enumerate(groups):
        (tmp_path / f"{number}.csv").unlink(missing_ok=True)
        records.append(tmp_path / f"{number}.csv", group)
    paths = [tmp_path / f"{number}.csv" for number in range(len(groups))]
    return answer(paths, Question(**options), keep=True)


def carried(said, cases):
    """(card, precision, model, session, status, seconds) of the rows behind `cases`, with how often each is there."""
    lines = csv.DictReader(said.table(cases).decode().splitlines())
    return Counter(tuple(line[name] for name in NAMES) for line in lines)


def of(given):
    texts = (dict(zip(COLUMNS, to_cells(each), strict=True)) for each in given)
    return Counter(tuple(text[name] for name in NAMES) for text in texts)


def test_the_rows_behind_results_and_sections(tmp_path):
    lost = row(trial=6, status="failed", seconds=None, measured="")
    ours, theirs = [*rows(FAST), lost], rows(SLOW, **TI)
    mixed, other = rows([s / 4 for s in SLOW], precision="fp16"), rows(SLOW, model="resnet34", session="s9")
    said = answered(tmp_path, ours, theirs, mixed, other)
    cards, precisions = (next(each for each in said.results if each.kind == kind) for kind in ("card", "precision"))
    assert carried(said, cards.cases) == of([*ours, *theirs])
    assert carried(said, precisions.cases) == of([*ours, *mixed])
    assert all(chart.cases == cards.cases for chart in cards.charts)
    assert carried(said, None) == of([*ours, *theirs, *mixed, *other])
    assert carried(said, frozenset()) == Counter()
    given = rows(FAST), rows(SLOW, precision="fp16"), rows(SLOW, precision="bf16")
    said = answered(tmp_path, *given, rows(FAST), where=("precision!=bf16",))
    assert carried(said, None) == of([*given[0], *given[1]])  # and those that are there twice count once
    assert (said.files, said.rows, said.failed) == (4, 12, 0)
    ladder = [row(model=f"step{n}", rung=n, seconds=9.0 - n, studies="ladder", suite="mine") for n in range(3)]
    sums = row(suite="sums", model="x", processes=2, table='[["what", "busbw"], ["message", 1.5]]', session="s3")
    given = ladder, rows(FAST), rows(SLOW, **TI), [row(model="lone", processes=n, session=f"p{n}") for n in (1, 2)]
    said = answered(tmp_path, *given, [sums])
    behind = frozenset[int]().union(*(section.cases for section in said.sections))
    assert carried(said, behind) >= of([each for group in given for each in group])


def test_files_failures_and_what_cannot_be_read_are_counted(tmp_path):
    lost = row(trial=6, status="out_of_memory", seconds=None, measured="")
    refused = [row(trial=n, status="unsupported", seconds=None, measured="", precision="tf32") for n in (7, 8)]
    (tmp_path / "f").mkdir()
    records.append(tmp_path / "f" / "0.csv", [*rows(FAST), lost, *refused])
    (tmp_path / "f" / "1.csv").write_text("nonsense\n")
    (tmp_path / "f" / "notes.txt").write_text("nonsense\n")
    said = answer([tmp_path / "f"])
    assert (said.files, said.unread, said.rows, said.failed, len(said.problems)) == (1, 1, 9, 1, 1)
    assert read_of(said)[1] == "1 file not read."
    assert "p < 0.05 after Holm's correction" in said.rule


def everything_of(tmp_path):
    return answered(
        tmp_path, rows(FAST, **COUNTED), rows(SLOW, **TI), rows(FAST, suite="wordlm", model="lstm"),
        rows(SLOW, suite="wordlm", model="lstm", precision="bf16"),
        [row(model="lone", processes=n, samples_per_second=50.0 * n, session=f"p{n}") for n in (1, 4)],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wish", "suites", "studies"),
    [
        ("wordlm", {"wordlm"}, {"pairs", "roofline"}),
        ("WordLM", {"wordlm"}, {"pairs", "roofline"}),
        ("scaling", {"resnet"}, {"scaling"}),
        ("pairs", {"resnet", "wordlm"}, {"pairs"}),
    ],
)
def test_a_suite_or_a_study_alone(tmp_path, wish, suites, studies):
    whole = everything_of(tmp_path)
    part = only(whole, wish)
    assert {section.suite for section in part.sections} == suites
    assert {section.study for section in part.sections} == studies
    assert list(part.results) == [each for each in whole.results if any(each in s.results for s in part.sections)]
    assert part.headline.startswith(part.results[0].said)
    assert (part.files, part.rows, part.rule) == (whole.files, whole.rows, whole.rule)


def test_a_card_alone_or_a_name_that_is_not_there(tmp_path):
    lines = ("an A100 has no row", "a GTX 1080 Ti has no row")
    whole = everything_of(tmp_path)
    sections = tuple(replace(section, left_out=lines) for section in whole.sections)
    part = only(replace(whole, left_out=lines, sections=sections), "1080")
    assert {part.left_out, *(section.left_out for section in part.sections)} == {lines[1:]}
    assert {(each.subject, each.baseline) for each in part.results} == {("RTX 2080 Ti", "GTX 1080 Ti")}
    for section in part.sections:
        for table in section.tables:
            assert all(any("1080" in str(value) for value in line) for line in table.lines)
    with pytest.raises(UserError, match=r"there are resnet, wordlm, pairs, .*GTX 1080 Ti, RTX 2080 Ti") as said:
        only(everything_of(tmp_path), "1090 ti")
    assert "did you mean GTX 1080 Ti?" in str(said.value)


def test_no_two_charts_have_one_name(tmp_path):
    said = everything_of(tmp_path)
    charts = [chart.name for each in said.results for chart in each.charts]
    charts += [chart.name for section in said.sections for chart in section.charts]
    assert len(charts) == len(set(charts)) > 4
    names = Counter()
    assert [_named(pairs(), names).name for _ in range(3)] == ["pairs", "pairs-2", "pairs-3"]
    assert _named(pairs("a-seconds"), names, "lr-1").name == "a-lr-1-seconds"
    assert _named(ratios((2.0, 1.9, 2.1)), names).subtitle.endswith("; lines: 95% intervals")


def test_sections_that_read_alike_say_in_what_they_differ(tmp_path):
    pairs = [
        rows(seconds, precision=precision, params=f"epochs=1 width={width}", suite="mine")
        for width in (8, 64)
        for precision, seconds in (("fp32", SLOW), ("bf16", FAST))
    ]
    titles = [section.title for section in answered(tmp_path, *pairs).sections if section.study == "pairs"]
    assert sorted(titles) == ["mine: CIFAR-100, full, width=64", "mine: CIFAR-100, full, width=8"]


def test_nothing_to_compare_says_why_and_where_a_result_is_missing(tmp_path):
    assert lacking(answered(tmp_path, rows(FAST)).headline, "card", "precision") == []
    lost = row(precision="bf16", status="out_of_memory", seconds=None, measured="")
    said = answered(tmp_path, rows(FAST, samples_per_second=None), [lost])
    assert (said.results, said.headline[:7]) == ((), "Nothing")
    assert lacking(said.headline, "bf16", "out of memory") == []
    with pytest.raises(UserError, match=r"no row to compare: .*none\.csv: cannot be read"):
        answer([tmp_path / "none.csv"])


@pytest.mark.parametrize(
    ("arguments", "code"), [((), 0), (("--only", "roofline"), 0), (("--only", "pairs"), 0), (("--by", "torch"), 3)]
)
def test_the_exit_code_says_whether_there_was_an_answer(cli, tmp_path, arguments, code):
    records.append(tmp_path / "a.csv", [*rows(FAST, **COUNTED), *rows(SLOW, **TI, **COUNTED)])
    done = cli("compare", "a.csv", *arguments)
    assert done.returncode == code, (done.stdout, done.stderr)
