"""No CSV, however hostile, makes a traceback; its good rows are used and its bad ones named."""

import json

import pytest
from rich.cells import cell_len
from rows import row, rows
from typer.testing import CliRunner

from gpubench.cli.app import app
from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.rows.read import load
from gpubench.rows.row import COLUMNS, to_cells
from gpubench.show.formats import FORMATS, rendered
from gpubench.show.terminal import everything, screen
from gpubench.studies.answer import answer

SCRIPT = "<script>alert(1)</script>"


STEERING = {chr(code) for code in (*range(32), *range(127, 160))} | set("\u200e\u200f\u202a\u202e\u2066\u2069")


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.csv"
    other = {"card": "NVIDIA GeForce GTX 1080 Ti", "device_hash": "bbbb"}
    times = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]
    mixed = rows([value / 1.4 for value in times], precision="fp16")
    records.append(path, [*rows(times), *rows([value * 1.2 for value in times], **other), *mixed])
    return path


def whole_answer(path):
    """Everything that compare makes of a file, and the answer; UserError is the only way out."""
    try:
        said = answer([path], keep=True)
    except UserError:
        return None
    for name in FORMATS:
        assert rendered(said, name)
    for lines in (screen(said), everything(said, 80), everything(said, 200)):
        assert not set("".join(lines)) & STEERING
    assert all(max(map(cell_len, lines), default=0) < 80 for lines in (screen(said), everything(said, 80)))
    for section in said.sections:
        assert section.title
        assert load_text(said.table(section.cases)) <= load_text(said.table(None))
    return said


def load_text(table):
    """The lines of a table of ours, whose header is whole."""
    header, *lines = table.split(b"\n")[:-1]
    assert header == ",".join(COLUMNS).encode()
    return set(lines)


HOSTILE = {
    "script tags": {"card": SCRIPT, "model": "<img src=x onerror=alert(1)>", "reason": "</script>" + SCRIPT},
    "quotes": {"card": "a\"b'c`d", "model": '"><svg onload=alert(1)>', "params": "x='1' y=\"2\""},
    "formulas": {"card": "=cmd|'/c calc'!A1", "model": "@SUM(1)", "driver": "+1", "torch": "-2+3"},
    "control characters": {"card": "a\x1b[31mred\x07\x08", "model": "\u202eabc\u2066", "params": "a\x0bb\x85c"},
    "a very long field": {"reason": "x" * 1_000_000, "card": "y" * 5000},
    "numbers at the edge": {"seconds": 1e49, "samples_per_second": 1e-49, "batch_size": 2**53, "processes": 1},
    "nothing": {"card": "", "params": "", "session": "", "device_hash": "", "trial": None, "batch_size": None},
    "a chart's own marks": {"card": "$x^$ {b} %s \\frac", "model": "a$b_c$ \u4e2d\u6587", "params": "x=$1"},
    "markup of rich": {"card": "[bold red]x[/]", "model": "[link=http://x]y[/link]"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_fields(good, tmp_path, name):
    path = tmp_path / "hostile.csv"
    records.append(
        path, rows([1.0, 2.0, 3.0], **{k: v for k, v in HOSTILE[name].items() if k not in {"seconds", "trial"}})
    )
    records.append(path, [row(**{"trial": 7, **HOSTILE[name]})])
    said = whole_answer(path)
    assert said is not None
    markdown = rendered(said, "markdown")
    for tag in ("<script", "<img", "<svg"):
        assert tag not in markdown
    assert len(load([path, good]).frame) == 18 + 4


def files_that_are_none():
    good = ",".join(COLUMNS).encode() + b"\n" + ",".join(to_cells(row())).encode() + b"\n"
    many = b"schema,suite,model,precision,status," + b",".join(b"c%d" % n for n in range(100_000))
    return {
        "100,000 columns": (many + b"\n1,a,b,fp32,ok" + b"," * 100_000 + b"\n", 1, ""),
        "UTF-16": (good.decode().encode("utf-16"), 0, "not a gpubench file"),
        "an open quote": (good.replace(b"AMD EPYC", b'"AMD EPYC') + good.partition(b"\n")[2], 1, "line 2"),
        "a page": (b"<!doctype html><p>hello", 0, "ask for the original"),
    }


@pytest.mark.parametrize("name", files_that_are_none())
def test_hostile_files(tmp_path, good, name):
    content, count, words = files_that_are_none()[name]
    path = tmp_path / "hostile.csv"
    path.write_bytes(content)
    loaded = load([path, good])
    assert len(loaded.frame) == 18 + count
    assert not words or words in loaded.problems[0]
    done = CliRunner().invoke(app, ["compare", str(path), str(good)])
    assert done.exit_code == 0
    assert "Traceback" not in done.output


@pytest.mark.parametrize("name", ["control characters", "script tags", "a chart's own marks"])
def test_hostile_names_in_every_study(tmp_path, name):
    """A ladder, ablations, batches, processes, a search's curve, stages, epochs, works and sums, all called so."""
    path, odd = tmp_path / "hostile.csv", {**HOSTILE[name], "suite": f"s{HOSTILE[name]['card']}"}
    model = str(odd.pop("model"))
    params = str(odd.get("params", "epochs=1")).replace(" ", "_")
    stages = '[["hours", "size"], [0.5, 128], [1.5, 224]]'
    sums = [["what", "algorithm", "bytes", "fused", "seconds", "busbw"], ["message", f"ring{model}", 1024, False, 1, 2]]
    epochs = [["epoch", "hours", "top1"], [1, 0.5, 0.1], [2, 1, 0.2], [3, 1e300, 0.3], [model, model, model]]
    gains = [["what", "times", "baseline"], [model, 2, model], [model, 1e300, model], [model, 10**400, model]]
    for changes in (
        *({"model": f"{model}{n}", "rung": n, "studies": "ladder", "seconds": 9.0 - n} for n in (1, 2)),
        *({"model": each, "studies": "ablation", "precision": "tf32"} for each in ("plain", model)),
        *(
            {"model": model, "studies": "batch", "accuracy": 0.5, "params": f"global_batch={n} {params}",
             "session": f"b{n}"} for n in (8, 64)
        ),
        *({"model": model, "processes": n, "session": f"p{n}", "samples_per_second": 50.0 * n} for n in (1, 4)),
        {"model": model, "batch_curve": "[[8, 100.0, 5], [16, 180.0, 9]]", "precision": "bf16"},
        {"model": model, "table": stages, "precision": "fp16"},
        *(
            {"model": model, "mode": "published", "studies": "published", "session": "w", "source": f"{model}{n}",
             "params": "goal=0.9", "processes": n, "seconds": n * 9.0, "table": table}
            for n, table in ((1, json.dumps(epochs)), (2, json.dumps(gains)))
        ),
        {"model": "allreduce", "table": json.dumps(sums), "processes": 2, "backend": model, "interconnect": model},
    ):  # fmt: skip
        records.append(path, [row(**{**odd, **changes, "trial": trial}) for trial in range(2)])
    said = whole_answer(path)
    assert {section.study for section in said.sections} >= {
        *("ladder", "ablation", "batch", "scaling", "stages", "epochs", "published")
    }
    for form in FORMATS:
        assert not set(rendered(said, form).replace("\r", "")) & (STEERING - {"\n"}), form
    assert not any(tag in rendered(said, "markdown") for tag in ("<script", "<img", "<svg"))
