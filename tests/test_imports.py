"""Published files of other tools become rows that keep their source and recipe."""

from pathlib import Path

import pytest

from gpubench.analysis.compare import Question, compare
from gpubench.errors import UserError
from gpubench.interop.imports import Facts, import_files
from gpubench.rows.read import load

PUBLISHED = Path(__file__).parent / "published"
SOURCE = "github.com/someone/results@abc"


@pytest.fixture
def taken_in(tmp_path):
    def run(name, format_name, **facts):
        out = tmp_path / "rows.csv"
        import_files([PUBLISHED / name], format_name, Facts(**{"source": SOURCE, **facts}), out)
        loaded = load([out])
        assert loaded.problems == []
        return loaded.frame

    return run


def test_timm(taken_in):
    frame = taken_in("timm-train.csv", "timm", card="NVIDIA GeForce RTX 3090", precision="fp16", params="layout=nhwc")
    row = frame.set_index("model").loc["resnet50"]
    assert (row["samples_per_second"], row["batch_size"]) == (1218.01, 512)
    assert row["params"] == "image_size=224 layout=nhwc pass=train"
    assert set(frame["source"]) == {SOURCE}
    assert set(frame["mode"]) == {"published"}


def test_lambda_zeros_and_wild_figures_are_failed_rows(taken_in):
    frame = taken_in("lambda-fp32.csv", "lambda", precision="tf32", batches=PUBLISHED / "lambda-batches.csv")
    rows = frame.set_index(["model", "card", "processes"])
    assert rows.loc[("resnet50", "RTX 3090", 1), "samples_per_second"] == 513
    assert rows.loc[("resnet50", "RTX 3090", 2), "batch_size"] == 448
    assert rows.loc[("transformerxlbase", "Dell H100 80GB SXM5", 1), "status"] == "failed"
    wild = rows.loc[("ncf", "Dell H100 80GB SXM5", 4)]
    assert wild["status"] == "failed"
    assert "implausible" in wild["reason"]
    assert (frame["status"] == "failed").sum() == 3


def test_lambda_without_a_count_column(taken_in):
    frame = taken_in("lambda-v2.csv", "lambda", precision="fp16")
    assert list(frame.sort_values("processes")["processes"].unique()) == [1, 2]


def test_dawnbench_takes_the_first_epoch_at_the_goal(taken_in):
    (row,) = taken_in("dawnbench.json", "dawnbench", source="").to_dict("records")
    assert row["seconds"] == pytest.approx(0.11224536388888888 * 3600)
    assert row["epochs"] == 26
    assert row["accuracy"] == pytest.approx(0.9404, abs=1e-4)
    assert row["params"] == "goal=94%top1"
    assert row["source"].startswith("https://github.com/fastai/imagenet-fast")


def test_a_notebook_gives_what_was_read_off_it_by_hand(taken_in):
    frame = taken_in("notebook.ipynb", "notebooks", card="NVIDIA GeForce RTX 2080 Ti")
    results = load([Path(__file__).parents[1] / "results" / "2019-rtx-2080-ti-gtx-1080-ti.csv"]).frame
    by_hand = results[results["card"].str.contains("2080")].set_index(["model", "precision"])
    assert len(frame) >= 3
    for row in frame.to_dict("records"):
        same = by_hand.loc[(row["model"], row["precision"])]
        assert (row["seconds"], row["batch_size"]) == (same["seconds"], same["batch_size"])
        assert row["accuracy"] == pytest.approx(same["accuracy"], abs=1e-5)


def test_imported_rows_meet_only_their_like(tmp_path):
    out = tmp_path / "rows.csv"
    for source, card in ((SOURCE, "RTX 3090"), ("github.com/other/results@1", "RTX 4090")):
        facts = Facts(source=source, card=card, precision="fp16")
        import_files([PUBLISHED / "notebook.ipynb"], "notebooks", facts, out)
    assert not [c for c in compare([out]).comparisons if c.axis == "card"]
    mixed = [c for c in compare([out], Question(allow_mismatch=True)).comparisons if c.axis == "card"]
    assert mixed
    assert all("source" in " ".join(c.notes) for c in mixed)
    assert not {c.verdict for c in mixed} & {"faster", "slower", "same"}


@pytest.mark.parametrize(
    ("name", "format_name", "facts", "words"),
    [
        ("timm-train.csv", "timm", {"source": ""}, "--source"),
        ("timm-train.csv", "timm", {}, "--card"),
        ("timm-train.csv", "timm", {"card": "x"}, "--precision"),
        ("lambda-fp32.csv", "lambda", {}, "--precision"),
        ("timm-train.csv", "lamda", {}, "there is timm"),
        ("timm-train.csv", "notebooks", {"card": "x"}, "not a file of the format notebooks"),
        ("dawnbench.tsv", "timm", {"card": "x", "precision": "fp16"}, "not a file of the format timm"),
        ("nothing.json", "dawnbench", {}, "cannot be read"),
    ],
)
def test_what_a_file_does_not_say_is_asked_for(taken_in, name, format_name, facts, words):
    with pytest.raises(UserError, match=words):
        taken_in(name, format_name, **facts)
