"""Published files of other tools become rows that keep their source and recipe."""

import json
from pathlib import Path

import pytest

from gpubench.analysis.compare import Question, compare
from gpubench.errors import UserError
from gpubench.interop.imports import Facts, import_files
from gpubench.interop.notebooks import runs_of
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
    assert row["params"] == "goal=0.94"
    assert row["suite"] == "cifar10"
    assert row["dollars"] == pytest.approx(2.30 * 0.11224536388888888)
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


HEADER = "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *(
            (f"{HEADER}a,{text},1,2,3,4\n".encode(), "")
            for text in ("5..3", "1e", "1_000", "0x1F", "inf", "\uff15", "1 0")
        ),
        *((f"{HEADER}a,{text},1,2,3,4\n".encode(), "") for text in ('"1,000"', "1e308", "5\0" + "3", "x")),
        (f"{HEADER}a,5\xff,1,2,3,4\n".encode("latin-1"), "utf-8"),
        (f"{HEADER}a,5,1,2,3\n".encode(), "line 2 has 5 cells, the header 6"),
        (f"{HEADER}a,5,1,2,3,4,5\n".encode(), "line 2 has 7 cells, the header 6"),
        (f"{HEADER}a,5,1,2,3,4\nb,5".encode(), "line 3 has 2 cells"),
        (HEADER.replace("model", "param_count").encode() + b"a,5,1,2,3,4\n", "stands twice"),
        (f'{HEADER}"a,5,1,2,3,4\n'.encode(), "unexpected end of data"),
        (f"{HEADER}a\0,5,1,2,3,4\n".encode(), "NUL"),
        (HEADER.replace("train_batch_size", "x").encode() + b"a,5,1,2,3,4\n", "it has no 'train_batch_size'"),
        (f"{HEADER}a,{'9' * 3_000_000}x,1,2,3,4\n".encode(), ""),
    ],
)
def test_what_is_no_number_or_no_whole_line_refuses_a_file(tmp_path, content, words):
    (tmp_path / "a.csv").write_bytes(content)
    facts = Facts(source=SOURCE, card="x", precision="fp16")
    with pytest.raises(UserError, match="not a file of the format timm") as error:
        import_files([tmp_path / "a.csv"], "timm", facts, tmp_path / "out.csv")
    assert words in str(error.value)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("text", ["nan", "NaN", "", "NA"])
def test_no_rate_is_a_failed_row(tmp_path, text):
    (tmp_path / "a.csv").write_text(f"{HEADER}a,{text},1,2,3,4\n")
    import_files([tmp_path / "a.csv"], "timm", Facts(SOURCE, "x", "fp16"), tmp_path / "out.csv")
    assert load([tmp_path / "out.csv"]).frame["status"].tolist() == ["failed"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("0.10814591277777778", text) for text in ("inf", "0.1..8", "-", "")),
        *(("94.04000012397766", text) for text in ("nan", "-", "")),
        *(("25\t", text) for text in ("1e400\t", "2\0005\t")),
    ],
)
def test_a_broken_entry_of_dawnbench_is_refused(tmp_path, old, new):
    for name in ("dawnbench.json", "dawnbench.tsv"):
        (tmp_path / name).write_text((PUBLISHED / name).read_text().replace(old, new))
    with pytest.raises(UserError, match="not a file of the format dawnbench"):
        import_files([tmp_path / "dawnbench.json"], "dawnbench", Facts(), tmp_path / "out.csv")


def test_an_epoch_that_was_not_evaluated_is_passed_over(tmp_path):
    for name in ("dawnbench.json", "dawnbench.tsv"):
        (tmp_path / name).write_text((PUBLISHED / name).read_text().replace("93.76000012397766", "N/A"))
    import_files([tmp_path / "dawnbench.json"], "dawnbench", Facts(), tmp_path / "out.csv")
    assert load([tmp_path / "out.csv"]).frame["epochs"].tolist() == [26]


ODD_NOTEBOOKS = [
    None, [], 5, {}, {"cells": None}, {"cells": {}}, {"cells": [None, 5, "x", []]}, {"cells": [{}]},
    {"cells": [{"cell_type": "code"}]}, {"cells": [{"cell_type": "code", "source": None, "outputs": None}]},
    {"cells": [{"cell_type": "code", "source": [1, None], "outputs": [[5], 3, None, {"text": None, "data": None}]}]},
    {"cells": [{"cell_type": "code", "source": "x", "outputs": [{"data": {"text/html": [5, {}]}, "text": {"a": 1}}]}]},
]  # fmt: skip


@pytest.mark.parametrize(
    "notebook", [*map(json.dumps, ODD_NOTEBOOKS), "[" * 100_000, '{"a":' * 50_000, "9" * 5000, "\0"]
)
def test_an_odd_notebook_is_a_sentence(tmp_path, notebook):
    (tmp_path / "a.ipynb").write_text(notebook)
    with pytest.raises(UserError, match=r"(?s)not a file of the format|no figure of the format"):
        import_files([tmp_path / "a.ipynb"], "notebooks", Facts(SOURCE, "x"), tmp_path / "out.csv")


def test_odd_cells_are_passed_over(tmp_path, taken_in):
    usual = taken_in("notebook.ipynb", "notebooks", card="x")
    notebook = json.loads((PUBLISHED / "notebook.ipynb").read_text())
    notebook["cells"] = [None, {"cell_type": "code", "source": 5}, *notebook["cells"], {"outputs": [[1]]}, []]
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    import_files([tmp_path / "a.ipynb"], "notebooks", Facts(SOURCE, "x"), tmp_path / "odd.csv")
    assert load([tmp_path / "odd.csv"]).frame["seconds"].tolist() == usual["seconds"].tolist()


@pytest.mark.parametrize(
    ("code", "output", "found"),
    [
        ("models.resnet18, bs=64)", "Total time: 01:02:03", (64, 3723)),
        ("models.resnet18, bs = 64 )", "Total time: 02:03 <p>", (64, 123)),
        ("models.resnet18, bs=--64)", "Total time: 02:03\n", (None, 123)),
        ("models.resnet18, bs=6..4)", "Total time: 02:03\n", (None, 123)),
        ("models.resnet18, bs=\uff16\uff14)", "Total time: 02:03\n", (None, 123)),
        *(
            ("models.resnet18, bs=64)", f"Total time: {text}", None)
            for text in ("01:02;03", "1:2x:33", "02:033", "\uff12:03")
        ),
        (
            " " * 200_000 + "models.resnet18, bs=" + " " * 200_000 + "x",
            "Total time: 02:03" + "<tr>" * 200_000,
            (7, 123),
        ),
        ("models.resnet18" + "=" * 500_000 + ".fit(1," * 50_000 + "bs=" * 100_000, "Total time: 02:03", (None, 123)),
    ],
)
def test_a_number_in_a_notebook_is_whole_or_unknown(code, output, found):
    source = f"learn = f({code}\nlearn.fit_one_cycle(30)"
    cells = [{"cell_type": "code", "source": "data = get(bs=7)"}]
    cells += [{"cell_type": "code", "source": source, "outputs": [{"text": output}]}]
    fits = [(fit.batch_size, fit.seconds) for fit in runs_of({"cells": cells})]
    assert fits == ([found] if found else [])


@pytest.mark.parametrize("model", ["a\0b", "\ud800"])
def test_a_text_that_no_row_can_hold_is_refused(tmp_path, model):
    entry = json.loads((PUBLISHED / "dawnbench.json").read_text()) | {"model": model}
    (tmp_path / "a.json").write_text(json.dumps(entry))
    (tmp_path / "a.tsv").write_text((PUBLISHED / "dawnbench.tsv").read_text())
    with pytest.raises(UserError, match="not a file of the format dawnbench"):
        import_files([tmp_path / "a.json"], "dawnbench", Facts(), tmp_path / "out.csv")
