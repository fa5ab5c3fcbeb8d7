"""Whatever finite figure a field holds, and however deep it is nested, a command ends with an answer or a sentence."""

import json
from types import SimpleNamespace

import pytest
from rows import row, rows
from test_hostile import whole_answer

from gpubench.analysis.compare import compare
from gpubench.analysis.metrics import read_prices
from gpubench.data import schedules
from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.rows.row import NUMBERS
from gpubench.rows.table import number, table_of
from gpubench.runner.batches import CaseBatches
from gpubench.show.exports import export

DEEP = "[" * 100_000
DAYS = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]
OTHER = {"card": "RTX 3090", "device_hash": "bbbb"}


@pytest.mark.parametrize("other", [{}, {"session": "s2"}, OTHER, {"precision": "fp16"}])
def test_the_largest_number_against_the_smallest(tmp_path, other):
    records.append(
        tmp_path / "a.csv", [*rows([1e308, 1e308]), *rows([1e-308, 1e-308], **other), *rows(DAYS, model="m")]
    )
    said = whole_answer(tmp_path / "a.csv")
    assert [problem.partition("; ")[0] for problem in said.problems] == ["4 row(s) with seconds 1e+308"]
    assert said.rows == 6


@pytest.mark.parametrize("names", [NUMBERS[at::12] for at in range(12)])
def test_no_figure_of_a_column_is_too_absurd(tmp_path, names):
    path = tmp_path / "a.csv"
    usual = {**dict.fromkeys(NUMBERS, 2), "schema": 1, "accuracy": 0.5}
    usual |= {"studies": "ladder ablation batch", "params": "global_batch=8"}
    for at, value in enumerate([1e308, 1e-308, -1e308, 1e49, -1e49, 1e-49, -0.0, 0, -1, 0.5, 10**18, 5e-324]):
        changes = [{**each, name: value} for each in ({}, OTHER, {"model": "plain"}) for name in names]
        records.append(path, [row(**{**usual, "trial": at, **each}) for each in changes])
    records.append(path, [row(**{**usual, "trial": 99}), *rows(DAYS, **OTHER)])
    whole_answer(path)


@pytest.mark.parametrize("column", ["power_limit_watts", "load_average"])
def test_minus_nothing_is_nothing(tmp_path, column):
    records.append(tmp_path / "a.csv", [row(**{column: value, "trial": at}) for at, value in enumerate((0.0, -0.0, 0))])
    assert len(compare([tmp_path / "a.csv"]).workloads[0].groups) == 1


@pytest.mark.parametrize(
    "value", [None, "1", "1e308", [], {}, 1e308, 1e-308, -1e51, float("nan"), float("inf"), 10**400]
)
def test_what_is_no_figure_of_a_table(value):
    with pytest.raises(ValueError, match="not a figure"):
        number(value)


@pytest.mark.parametrize(
    "text", [DEEP, '{"a":' * 50_000, "9" * 5000, '[["hours","size"],[1e999,1e999]]', "[[8,1e300]]"]
)
def test_deep_and_endless_json_in_a_field_is_none(tmp_path, text):
    path = tmp_path / "a.csv"
    for at, column in enumerate(("table", "laps", "batch_curve", "params", "reason")):
        records.append(path, rows(DAYS[:2], **{column: text}, train_seconds=90.0, accuracy=0.5, model=f"m{at}"))
    whole_answer(path)
    export([path], tmp_path / "entries")


@pytest.mark.parametrize("line", [[1, None, 0.5, 0.9], [1, 0.5, "x", 0.9], ["1", 0.5, 0.5, 0.9], [1, [], 0.5, 1e308]])
def test_a_table_with_odd_figures_is_no_table_of_epochs(tmp_path, line):
    table = json.dumps([["epoch", "hours", "top1", "top5", "size"], [*line, 128]])
    assert table_of(table)
    records.append(tmp_path / "a.csv", rows(DAYS, table=table, accuracy=0.5, epochs=3))
    whole_answer(tmp_path / "a.csv")
    export([tmp_path / "a.csv"], tmp_path / "dawn")
    assert next((tmp_path / "dawn").glob("*.tsv")).read_text().startswith("epoch\thours\ttop1Accuracy\n3\t")


@pytest.mark.parametrize(
    "text", [DEEP, f"x = {DEEP}", "x = " + "9" * 5000, f"x = {'{a=' * 50_000}", "[[phase]]\n" * 3000]
)
def test_deep_toml_is_a_sentence(tmp_path, text):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(UserError):
        read_prices(tmp_path / "a.toml")
    with pytest.raises(UserError):
        schedules.parse(text, "a.toml")


@pytest.mark.parametrize("value", ["9" * 400, "0x" + "f" * 5000, "-1e308", "1e308", "nan", "[[[1]]]", "true", '"1"'])
def test_absurd_figures_of_a_schedule_and_of_a_price_are_sentences(tmp_path, value):
    for old in ("4096", "13]", "160", "2]", "0.087"):
        with pytest.raises(UserError, match=r"^phases: "):
            schedules.read(schedules.TITAN_RTX.replace(old, value + old.lstrip("0123456789."), 1))
    for line in (f"hourly = {value}", f"price = {value}\nyears = 1", f"price = 1\nyears = {value}"):
        (tmp_path / "a.toml").write_text(f'["RTX"]\n{line}\n')
        if value not in {"true", '"1"'}:
            with pytest.raises(UserError, match="needs hourly"):
                read_prices(tmp_path / "a.toml")


@pytest.mark.parametrize("params", ["image_size=", "group=", "global_batch=", "threads=", "goal=", "epochs="])
def test_a_parameter_of_thousands_of_digits_is_none(tmp_path, params):
    sums = [["what", "algorithm", "bytes", "fusion_bytes", "seconds", "busbw"], ["message", "ring", 1024, 0, 1, 2]]
    more = {"params": params + "9" * 5000, "studies": "batch", "accuracy": 0.5, "processes": 2}
    records.append(tmp_path / "a.csv", [*rows(DAYS, **more), *rows(DAYS, **more, table=json.dumps(sums))])
    whole_answer(tmp_path / "a.csv")


@pytest.mark.parametrize("text", [DEEP, "9" * 5000, "[[8]]", '[[8,"x",1]]', "5", "[[8,1e999,1]]"])
def test_a_broken_curve_of_an_earlier_run_is_not_gone_on_with(text):
    known = {"batch_size": 8.0, "batch_capped": False, "batch_curve": text}
    session, earlier = SimpleNamespace(suites={}, devices={}), SimpleNamespace(batch_of=lambda case: known)
    batches = CaseBatches(session, earlier, measure=None, say=None)
    assert batches._read(SimpleNamespace(batch_size=None)) is None
