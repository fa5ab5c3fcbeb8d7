"""gpubench as a library: what docs/comparing.md shows runs, imports nothing heavy by itself, and is typed."""

import re
from pathlib import Path

import pytest
from facts import lacking

import gpubench
from gpubench.errors import UserError

ROOT = Path(__file__).parents[1]
ARTICLE = ROOT / "results" / "2019-rtx-2080-ti-gtx-1080-ti.csv"


def test_the_example_of_the_documentation_runs(monkeypatch, capsys, tmp_path):
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "comparing.md").read_text(), re.DOTALL)
    names = {}
    exec(example, names)
    assert lacking(capsys.readouterr().out.splitlines()[0], "RTX 2080 Ti", 1.42, "GTX 1080 Ti") == []
    assert names["frame"]["value"].iloc[0] == pytest.approx(1.42, abs=0.005)


def test_an_answer_is_short_to_print_and_a_chart_is_a_figure(tmp_path):
    answer = gpubench.compare(ARTICLE)
    assert (repr(answer), answer.files) == (f"{answer.headline} [5 results, 18 rows]", 0)
    assert repr(gpubench.load([str(ARTICLE)])).startswith("18 rows of resnet on ")
    answer.chart().savefig(tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 10_000
    with pytest.raises(UserError, match="resnet-rtx-2080-ti-over-gtx-1080-ti"):
        answer.chart("another")


def test_rows_are_chosen_and_the_options_of_the_command_are_arguments():
    rows = gpubench.load(ARTICLE)
    chosen = rows[rows["card"].str.contains("2080")]
    assert (len(rows), len(chosen), {row["model"] for row in chosen}) == (18, 10, set(chosen["model"]))
    for wrong in (["card"], 0, "nothing", chosen["card"] == "x"):
        with pytest.raises(UserError, match="bools of these rows"):
            rows[wrong]
    answer = gpubench.compare(chosen)
    assert [result.kind for result in answer.results] == ["precision"]
    assert len(answer.table(None).splitlines()) == 11, "a chosen row's text, and the header"
    assert len(rows.to_frame()) == 18
    slower = gpubench.compare(rows, by="card", baseline="2080", where=["precision=fp32"])
    assert [round(each.value, 2) for each in slower.results] == [0.77]
    assert gpubench.compare(rows, metric="rate").unit == "samples/s"
    assert gpubench.compare(rows, only="pairs").sections
    with pytest.raises(UserError, match="there are"):
        gpubench.compare(rows, only="RTX 5090")


def test_only_public_names_are_listed():
    assert {"load", "compare", "Suite", "UserError"} <= set(dir(gpubench))
    assert not [name for name in dir(gpubench) if name.startswith("_") and name != "__version__"]
    assert {name for name in dir(gpubench) if not hasattr(gpubench, name)} == set()


@pytest.mark.parametrize("argument", [{"only": "no"}, {"metric": "x"}, {"by": "x"}, {"where": "x"}, {"baseline": "x"}])
def test_errors_speak_of_arguments(argument):
    with pytest.raises(UserError) as error:
        gpubench.compare(ARTICLE, **argument)
    assert str(error.value).startswith(next(iter(argument)))
