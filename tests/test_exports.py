"""Entries of DAWNBench have the figures of their rows."""

import json

import pandas as pd
import pytest
from rows import row, rows

from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.rows.table import epochs_in
from gpubench.show.exports import export

TIMES = [100.0, 101.0, 99.5, 100.2, 100.9, 99.9]


@pytest.fixture
def results(tmp_path):
    path = tmp_path / "rows.csv"
    full = {"epochs": 30, "accuracy": 0.9412, "train_seconds": 90.0, "started": "2026-11-21T04:07:53+00:00"}
    ours = rows(TIMES, params="epochs=30 image_size=224", **full)
    mixed = rows([value / 1.5 for value in TIMES], precision="fp16", params="epochs=30 image_size=224", **full)
    records.append(path, [*ours, *mixed, row(model="resnet50", status="failed", seconds=None)])
    return path


def test_mistakes(results, tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        export([results], tmp_path / "rows.csv" / "x")
    with pytest.raises(UserError, match="no row with status ok"):
        export([tmp_path / "missing.csv"], tmp_path)


def test_dawnbench_has_files_for_each_full_run_and_every_epoch_in_its_own_folder(tmp_path, results):
    columns = ["epoch", "hours", "top1", "top5", "crop", "size"]
    epochs = [[1, 0.5, 0.5, 0.75, "square", 128], [2, 1.25, 0.76, 0.9301, "rectangle", 288]]
    table = json.dumps([columns, *epochs, [2, 1.25, 0.75, 0.92, "square", 288], [3, 2, 0.8, 0.95, "square", 288]])
    records.append(tmp_path / "a.csv", [row(suite="imagenet", accuracy=0.8, top5=0.95, epochs=3, table=table)])
    export([tmp_path / "a.csv"], tmp_path / "dawn")
    tsv = next((tmp_path / "dawn").glob("*.tsv")).read_text()
    assert tsv == "epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.5\t50\t75\n2\t1.25\t76\t93.01\n"
    lines = export([results], tmp_path / "entries")
    assert len([line for line in lines if line.endswith(".json")]) == 12
    about = json.loads((tmp_path / "entries").glob("*.json").__next__().read_text())
    assert {"version", "author", "framework", "model", "hardware", "costPerHour", "timestamp"} <= set(about)
    table = pd.read_csv(next((tmp_path / "entries").glob("*.tsv")), sep="\t")
    assert list(table.columns) == ["epoch", "hours", "top1Accuracy"]
    assert table.loc[0, "hours"] == 90 / 3600


def test_a_models_name_leads_to_no_other_folder(tmp_path):
    records.append(tmp_path / "a.csv", [row(model="../../out", card="../x", accuracy=0.9, epochs=3)])
    paths = export([tmp_path / "a.csv"], tmp_path / "b" / "c" / "entries")
    written = [path for path in tmp_path.rglob("*") if path.suffix in {".json", ".tsv"}]
    assert {str(path) for path in written} == set(paths)
    assert {path.parent.name for path in written} == {"entries"}


def test_an_entry_that_version_0_2_imported_is_a_row_like_others(tmp_path):
    """Its table begins with an object that says where it is from, and has cells as the entry wrote them."""
    about = {"file": "one", "about": {"model": "ResNet-50"}, "layout": {"separator": ","}}
    columns = ["epoch", "hours", "top1Accuracy", "top5Accuracy"]
    table = json.dumps([about, columns, ["1", "0.5", "N/A", "80.5"], ["2", "1.5", "75", "93.1"]])
    assert [(epoch.number, epoch.hours, epoch.top1) for epoch in epochs_in(table)] == [(1, 0.5, None), (2, 1.5, 0.75)]
    records.append(tmp_path / "a.csv", [row(mode="published", accuracy=0.75, epochs=2, seconds=5400.0, table=table)])
    export([tmp_path / "a.csv"], tmp_path / "dawn")
    (tsv,) = (tmp_path / "dawn").glob("*.tsv")
    assert tsv.read_text() == "epoch\thours\ttop1Accuracy\n2\t1.5\t75.0\n"
