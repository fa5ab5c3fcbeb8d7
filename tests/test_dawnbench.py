"""DAWNBench's pairs of files: into rows of the suites they belong to, with every line, and back as they were."""

import json

import pytest

from gpubench.errors import UserError
from gpubench.interop.dawnbench import entry_in
from gpubench.interop.exports import export
from gpubench.interop.imports import Facts, import_files
from gpubench.rows.read import load
from gpubench.rows.table import epochs_in

ABOUT = {
    "version": "v1.0", "author": "Some One", "authorEmail": "one@example.org", "framework": "PyTorch 0.4.1",
    "codeURL": "https://github.com/some/one", "model": "ResNet-50", "hardware": "8 * V100 (AWS  p3.16xlarge)",
    "costPerHour": 24.48, "timestamp": "2018-09-06", "misc": {"batch": [256, 512], "why": "größer  is ok"},
}  # fmt: skip
TSV = (
    "epoch\thours\ttop1Accuracy\ttop5Accuracy\n0\t0.0620\t7.040\t21.408\n1\t1.5\t75.10\t92.999\n2\t2.50\t75.3\t93.00\n"
)
CIFAR10 = "epoch\thours\ttop1Accuracy\n1\t0.5\t50\n2\t1\t94.0"


@pytest.fixture
def entry(tmp_path):
    """Writes the two files of an entry; returns the TSV's path."""

    def write(tsv=TSV, name="one_resnet50", **about):
        (tmp_path / f"{name}.json").write_text(json.dumps(ABOUT | about, ensure_ascii=False))
        (tmp_path / f"{name}.tsv").write_bytes(tsv.encode())
        return tmp_path / f"{name}.tsv"

    return write


def row_of(tmp_path, *paths, **facts):
    out = tmp_path / "rows.csv"
    out.unlink(missing_ok=True)
    import_files(list(paths), "dawnbench", Facts(**facts), out)
    loaded = load([out])
    assert loaded.problems == []
    return loaded.frame.iloc[0]


def test_an_entry_becomes_a_row_of_its_suite_with_all_its_lines(tmp_path, entry):
    row = row_of(tmp_path, entry())
    assert (row["suite"], row["model"], row["params"]) == ("imagenet", "resnet50", "goal=0.93")
    assert (row["seconds"], row["epochs"], row["accuracy"], row["top5"]) == (2.5 * 3600, 2, 0.753, 0.93)
    assert row["dollars"] == pytest.approx(2.5 * 24.48)
    epochs = epochs_in(row["table"])
    assert [(each.number, each.hours, each.top5) for each in epochs] == [
        (0, 0.062, pytest.approx(0.21408)), (1, 1.5, pytest.approx(0.92999)), (2, 2.5, 0.93),
    ]  # fmt: skip
    assert "example.org" not in (tmp_path / "rows.csv").read_text()
    assert row_of(tmp_path, entry(CIFAR10, model="ResNet 164 (with bottleneck)"))["suite"] == "cifar10"


@pytest.mark.parametrize(
    "tsv",
    [
        TSV,
        CIFAR10,
        TSV.replace("\n", "\r\n"),
        TSV.replace("\n", "\r\n").rstrip(),
        f"\ufeff{TSV}\n\n",
        TSV.replace("\t", ","),
        TSV.replace("75.10\t92.999", "N/A\t92.999"),
        "hours\tepoch\ttop1Accuracy\n  0.10  \t1.00096\t94.390\n",
    ],
)
def test_both_files_come_back(tmp_path, entry, tsv):
    row_of(tmp_path, entry(tsv))
    export([tmp_path / "rows.csv"], "dawnbench", tmp_path / "back")
    assert (tmp_path / "back" / "one_resnet50.tsv").read_bytes() == tsv.encode()
    about = json.loads((tmp_path / "back" / "one_resnet50.json").read_text())
    assert about == {name: value for name, value in ABOUT.items() if name != "authorEmail"}
    assert list(about) == [name for name in ABOUT if name != "authorEmail"]


def test_a_json_laid_out_as_most_are_comes_back_byte_for_byte(tmp_path, entry):
    tsv = entry()
    about = json.dumps({"model": "ResNet-50", "hardware": "8 x V100", "framework": "PyTorch"}, indent=4) + "\n"
    tsv.with_suffix(".json").write_text(about)
    row_of(tmp_path, tsv)
    export([tmp_path / "rows.csv"], "dawnbench", tmp_path / "back")
    assert (tmp_path / "back" / tsv.with_suffix(".json").name).read_text() == about


def test_both_files_of_an_entry_may_be_given_or_either(tmp_path, entry):
    tsv = entry()
    about = tsv.with_suffix(".json")
    for paths in ([tsv], [about], [tsv, about]):
        row_of(tmp_path, *paths)
        assert len(load([tmp_path / "rows.csv"]).frame) == 1


@pytest.mark.parametrize(("gone", "left"), [(".json", ".tsv"), (".tsv", ".json")])
def test_the_missing_one_of_the_two_is_named(tmp_path, entry, gone, left):
    tsv = entry()
    tsv.with_suffix(gone).unlink()
    for given in (gone, left):
        with pytest.raises(UserError, match=rf"one_resnet50\{left}: one_resnet50\{gone} is missing beside it"):
            row_of(tmp_path, tsv.with_suffix(given))


@pytest.mark.parametrize("none", ["N/A", "NA", "", None, "n/a"])
def test_no_price_is_none(tmp_path, entry, none):
    row = row_of(tmp_path, entry(costPerHour=none))
    assert row["status"] == "ok"
    assert row["dollars"] != row["dollars"]


def test_a_line_without_a_figure_reaches_no_goal(tmp_path, entry):
    row = row_of(tmp_path, entry("epoch\thours\ttop1Accuracy\n1\t0.1\t90\n2\t0.2\tN/A\n3\t0.5\t94\n4\t1\t95\n"))
    assert (row["epochs"], row["seconds"]) == (3, 1800)
    missed = row_of(tmp_path, entry("epoch\thours\ttop1Accuracy\n1\t0.5\t93.9\n"))
    assert (missed["status"], missed["reason"]) == ("goal_missed", "best 93.9%, the goal is 94%")


def test_a_line_with_more_cells_than_columns_is_refused(tmp_path, entry):
    with pytest.raises(UserError, match=r"more cells than there are columns: 1, 0\.5, 94, surplus"):
        row_of(tmp_path, entry("epoch\thours\ttop1Accuracy\n1\t0.5\t94\tsurplus\n"))
    assert row_of(tmp_path, entry("epoch\thours\ttop1Accuracy\n1\t0.5\t94\t\n"))["status"] == "ok"


@pytest.mark.parametrize("lines", ["", "1\t0.5\tN/A\n"])
def test_an_entry_without_a_line_says_so(tmp_path, entry, lines):
    with pytest.raises(UserError, match="no line has a top1Accuracy"):
        row_of(tmp_path, entry(f"epoch\thours\ttop1Accuracy\n{lines}"))


def test_an_entry_without_top1_comes_back(tmp_path, entry):
    tsv = "epoch\thours\ttop5Accuracy\n1\t0.5\t93.1\n"
    row_of(tmp_path, entry(tsv))
    export([tmp_path / "rows.csv"], "dawnbench", tmp_path / "back")
    assert (tmp_path / "back" / "one_resnet50.tsv").read_bytes() == tsv.encode()


def test_an_entry_of_another_task_says_what_it_has(tmp_path, entry):
    with pytest.raises(UserError, match="it has epoch, f1Score, hours"):
        row_of(tmp_path, entry("epoch\thours\tf1Score\n1\t0.5\t0.75\n"))


def test_two_entries_of_one_name_are_both_written(tmp_path, entry):
    first = entry(name="same")
    (tmp_path / "more").mkdir()
    for suffix in (".json", ".tsv"):
        (tmp_path / "more" / f"same{suffix}").write_bytes(first.with_suffix(suffix).read_bytes())
    row_of(tmp_path, first, tmp_path / "more" / "same.tsv")
    for _ in range(2):  # again into the same folder
        export([tmp_path / "rows.csv"], "dawnbench", tmp_path / "back")
        assert sorted(path.name for path in (tmp_path / "back").iterdir()) == [
            "same-1.json", "same-1.tsv", "same.json", "same.tsv",
        ]  # fmt: skip


@pytest.mark.parametrize(
    "table",
    ["", "[]", "3", "{}", '[["epoch"],[1]]', '[{"file":"a"},["epoch"]]', '[{"file":"a","about":{}},["epoch"],[1]]',
     '[{"file":"a","about":{},"layout":{"line":3}},["epoch"],["1"]]', '[{"file":"a","about":3},["epoch"]]'],
)  # fmt: skip
def test_a_table_of_anything_else_is_no_entry(table):
    assert entry_in(table) is None


def test_a_files_name_leads_to_no_other_folder(tmp_path, entry):
    row_of(tmp_path, entry())
    rows = tmp_path / "rows.csv"
    rows.write_text(rows.read_text().replace('""file"":""one_resnet50""', '""file"":""../../out""'))
    export([rows], "dawnbench", tmp_path / "a" / "b" / "back")
    assert {path.parent.name for path in tmp_path.rglob("*out*")} == {"back"}
