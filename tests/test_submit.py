"""`gpubench submit` names what a file lacks and which rows cannot be right, and nothing of a good file."""

import csv
import io
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from made_trials import made_row, usual_file
from typer.testing import CliRunner

from gpubench.cli.app import app
from gpubench.rows import write as records
from gpubench.rows.read import load
from gpubench.rows.row import COLUMNS, DIGEST, FLAGS, NUMBERS, digest_of
from gpubench.submit import row_checks
from gpubench.submit.check import reports
from gpubench.submit.submitted import rows_of
from gpubench.suite import files

ROOT = Path(__file__).parents[1]


def submitted(tmp_path, rows, name="mine.csv"):
    path = tmp_path / name
    path.unlink(missing_ok=True)
    records.append(path, rows)
    return reports([path])[path].missing


def changed(rows, number=2, **changes):
    """The rows, one of them with other cells; a function gives a cell from the one that is there."""
    given = rows[number]
    new = {name: value(getattr(given, name)) if callable(value) else value for name, value in changes.items()}
    return [replace(given, **new) if each is given else each for each in rows]


def every(rows, **changes):
    for number in range(len(rows)):
        rows = changed(rows, number, **changes)
    return rows


def test_a_whole_file_lacks_nothing(tmp_path):
    assert submitted(tmp_path, usual_file()) == []
    done = CliRunner().invoke(app, ["submit", str(tmp_path / "mine.csv")])
    assert done.exit_code == 0
    assert "ready" in done.output
    assert "note: AMD EPYC" in done.output


@pytest.mark.parametrize("mode", ["sampled", "full", "quick"])
@pytest.mark.parametrize("accelerator", [False, True])
def test_a_row_that_the_clock_made_has_no_problem(tmp_path, mode, accelerator):
    """Any pace, noise, stages, a goal that was met, a kill, a second process, sensors that settle late."""
    made = [made_row(mode, random.Random(seed), accelerator=accelerator, world=1 + seed % 2) for seed in range(25)]
    records.append(tmp_path / "a.csv", made)
    rows = rows_of(load([tmp_path / "a.csv"], keep=True))
    assert len(rows) == 25
    assert [problem for row in rows for problem in row_checks.problems(row)] == []


LACKING = {
    "no system": ({"os": ""}, "6 row(s) without os"),
    "an edited checkout": ({"commit": "abc+"}, "edited gpubench"),
    "a folder": ({"reason": "no file /home/jane/data"}, "column reason has a folder of a user"),
    "an e-mail address": ({"params": "epochs=1 mail=jane@example.org"}, "an e-mail address"),
    "a network address": ({"cpu": "host 10.1.2.3"}, "a network address"),
    "a source": ({"source": "github.com/x"}, "6 row(s) with a source"),
    "no card": ({"source": "github.com/x", "card": ""}, "published figure without card"),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_is_missing_is_named(tmp_path, name):
    changes, words = LACKING[name]
    assert any(words in line for line in submitted(tmp_path, every(usual_file(), **changes)))
    assert CliRunner().invoke(app, ["submit", str(tmp_path / "mine.csv")]).exit_code == 4


CONTRADICTED = {
    "a thousandth of the seconds": ({"seconds": lambda value: value / 1000}, "seconds", "4"),
    "a rate": ({"samples_per_second": lambda value: value * 1e6}, "data_stall", "4"),
    "a stall": ({"data_stall": 0.5}, "data_stall", "4"),
    "no laps": ({"laps": ""}, "laps", "4"),
    "laps of nothing": ({"laps": "[]"}, "laps", "4"),
    "laps that are none": ({"laps": '[["train",0,"timed",1,8,-1,0]]'}, "laps", "4"),
    "a swapped band": ({"seconds_low": 1e6, "seconds_high": 1.0}, "seconds", "4"),
    "half a band": ({"seconds_low": None}, "seconds_low", "4"),
    "no proof": ({"precision_proof": ""}, "precision_proof", "4"),
    "another precision": ({"precision": "bf16"}, "precision", "4"),
    "no such precision": ({"precision": "int4"}, "precision", "4"),
    "a precision of cards": ({"precision": "tf32"}, "precision", "4"),
    "no products in 8 bits": ({"precision": "int8-mixed", "precision_error": 8e-3}, "precision", "4"),
    "an error": ({"precision_error": 1e-9}, "precision_error", "4"),
    "a card": ({"card": "NVIDIA GeForce RTX 5090"}, "card", "4"),
    "2099": ({"started": "2099-01-01T00:00:00+00:00"}, "started", "4"),
    "1999": ({"started": "1999-01-01T00:00:00+00:00"}, "started", "4"),
    "no time": ({"started": "yesterday"}, "started", "4"),
    "more memory than there is": ({"peak_memory_bytes": 2**40}, "peak_memory_bytes", "4"),
    "beyond its peak": ({"measured_peak_flops": 1e5}, "samples_per_second", "4"),
    "far beyond it in fp16": ({"precision": "fp16", "measured_peak_flops": 1e5}, "samples_per_second", "4"),
    "a mode": ({"mode": "thorough"}, "mode", "4"),
    "a trial again": ({"trial": 1, "seed": 43}, "trial", "4"),
    "a trial far ahead": ({"trial": 10**12}, "trial", "4"),
    "another seed": ({"seed": 99}, "trial", "4"),
    "a missed goal that is ok": ({"success_rate": 0.0}, "status", "4"),
    "the reason of a missed goal": ({"reason": "accuracy 0.9312, and the goal is 0.94"}, "status", "4"),
    "a goal that was reached and missed": ({"status": "goal_missed", "success_rate": 1.0}, "status", "4"),
}
"""Changes of the third row, the column that is named, and the line."""


@pytest.mark.parametrize("name", CONTRADICTED)
def test_a_contradiction_is_named_with_line_and_column(tmp_path, name):
    changes, column, line = CONTRADICTED[name]
    said = submitted(tmp_path, changed(usual_file(), **changes))
    assert any(sentence.startswith(f"line {line}, {column} is ") for sentence in said), said


def test_what_all_rows_say_is_named_once_and_each_case_needs_its_trials(tmp_path):
    said = submitted(tmp_path, every(usual_file(), data_stall=0.5))
    heads = [line.partition(":")[0] for line in said if "data_stall" in line]
    assert heads == [*(f"line {n}, data_stall is 0.5" for n in (2, 3, 4)), "data_stall"]
    assert any("3 more lines" in line for line in said)
    for number in (1, 2, 4):
        rows = [replace(row, processes=processes) for row in usual_file()[:2] for processes in range(1, number + 1)]
        (said,) = (line for line in submitted(tmp_path, rows) if "has 2 of 3 trials" in line)
        assert said.endswith(f"({number} cases)" if number > 1 else "needs")


@pytest.mark.parametrize("status", ["ok", "goal_missed"])
def test_a_run_that_missed_its_goal_is_examined_as_others_are(tmp_path, status):
    said = submitted(tmp_path, changed(usual_file(), status=status, data_stall=0.5))
    assert any(line.startswith("line 4, data_stall") for line in said)


def test_copies_and_lists_up_to_the_limit(tmp_path):
    rows = usual_file()
    copies = [replace(rows[0], trial=row.trial, seed=row.seed, started=row.started) for row in rows]
    said = submitted(tmp_path, copies)
    assert [line.split(",")[0] for line in said if "laps is" in line] == ["line 3", "line 4", "line 5"]
    table = json.dumps([["epoch", "top5"], *([epoch, 0.5] for epoch in range(1000))])
    assert submitted(tmp_path, changed(usual_file(), reason="x" * 1000, table=table)) == []
    assert submitted(tmp_path, changed(usual_file(), 0, seed=None)) == ["line 2, seed is empty: a required column"]


def real_rows():
    """The rows of `results/` that gpubench measured, as text: a dict each."""
    paths = sorted((ROOT / "results").glob("*.csv"))
    rows = [row for path in paths for row in csv.DictReader(path.read_text().splitlines())]
    return [row for row in rows if row["status"] in ("ok", "goal_missed") and not row["source"]]


def write_texts(path, rows):
    """Write rows of texts with all columns and a fresh digest."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            values = [row.get(name, "") for name in COLUMNS[:-2]]
            writer.writerow([*values, digest_of(values), "end"])


RELABELLED = (
    {"session": "feedfeedfeed"},
    {"card": "AMD Ryzen 9", "cpu": "AMD Ryzen 9", "device_hash": "cccc"},
    {"session": "feedfeedfeed", "card": "AMD Ryzen 9", "cpu": "AMD Ryzen 9", "started": "2026-11-23T10:00:00+00:00"},
    {"session": "feedfeedfeed", "laps": '[["train",0,"timed",1,8,1.0,0.0]]'},
)


def test_copied_relabelled_and_renamed_rows_are_found(tmp_path):
    """Of twenty copies of rows of results/ under another session or card, each in a file of its own."""
    drawn = random.Random(35).sample(real_rows(), 20)
    paths = [tmp_path / f"{number}.csv" for number in range(20)]
    for number, (path, row) in enumerate(zip(paths, drawn, strict=True)):
        write_texts(path, [row | RELABELLED[number % len(RELABELLED)]])
    found = reports(paths, [ROOT / "results"])
    assert sum(any("results/" in line and "copy" in line for line in found[path].missing) for path in paths) >= 19
    true, other = usual_file(), every(usual_file(), card="AMD Ryzen 9", cpu="AMD Ryzen 9")
    assert submitted(tmp_path, other) == []  # alone it has no problem
    records.append(tmp_path / "true.csv", true)
    mine, others = tmp_path / "mine.csv", tmp_path / "true.csv"
    found = reports([others, mine])
    assert found[others].missing == []
    assert "true.csv, line 2" in found[mine].missing[0]
    assert "true.csv, line 2" in reports([mine], [others])[mine].missing[0]


def test_published_rows_are_no_copies_of_themselves(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    rows = usual_file()
    records.append(folder / "mine.csv", rows[:2])
    assert submitted(tmp_path, rows) == []
    assert reports([tmp_path / "mine.csv"], [folder])[tmp_path / "mine.csv"].missing == []  # rows were added
    assert reports([folder / "mine.csv"], [folder])[folder / "mine.csv"].missing[0].startswith("trials: ")
    write = [replace(row, session="feed") for row in rows]
    (tmp_path / "mine.csv").unlink()
    records.append(tmp_path / "mine.csv", write)
    assert "one is a copy" in reports([tmp_path / "mine.csv"], [folder])[tmp_path / "mine.csv"].missing[0]


@pytest.mark.parametrize("kept", [(1, 3, 4, 7, 8, 11), (0, 1, 2, 3, 4, 6), (6, 7, 8, 9, 10, 11)])
def test_the_fastest_six_of_twelve_are_found(tmp_path, kept):
    rows = usual_file(trials=12)
    assert submitted(tmp_path, rows) == []
    said = submitted(tmp_path, [rows[trial] for trial in kept])
    assert any("trial is" in line and "missing" in line for line in said)
    assert reports([tmp_path])[tmp_path / "mine.csv"].missing == said


def test_a_failed_trial_and_a_missed_goal_are_examined_and_not_missing(tmp_path):
    first, second = usual_file(1), [replace(row, model="other") for row in usual_file(2)]
    missed = changed(first, 5, status="goal_missed", success_rate=0.0)
    assert submitted(tmp_path, [*missed, *second]) == []
    assert any("trial(s) 5" in line for line in submitted(tmp_path, [*missed[:5], *second]))
    # A run leaves out a model whose ratios are decided, unless its studies or devices need equally many trials.
    for step, odd, complete in ((0.01, {}, True), (0.0199, {}, False), (0.01, {"studies": "ladder"}, False)):
        bf16 = usual_file(3, trials=3, precision="bf16", step=step)
        said = submitted(tmp_path, [replace(row, **odd) for row in (*first[:3], *bf16, *second)])
        assert sum("trial(s) 3, 4, 5 of small" in line for line in said) == (0 if complete else 2)
    rows = usual_file(trials=7)
    failed = replace(rows[3], status="timed_out", batch_size=None, seconds=None, laps="")
    assert submitted(tmp_path, [*rows[:3], failed, *rows[4:]]) == []


TEXTS = {
    "a formula": {"reason": "=HYPERLINK(1)"},
    "an escape": {"reason": "\x1b[2J"},
    "a turned writing": {"cpu": "AMD \u202eEPYC", "card": "AMD \u202eEPYC"},
    "a long text": {"reason": "x" * 1001},
    "many digits": {"reason": "9" * 10**6 + "x"},
    "a table that is none": {"table": "x" * 2000},
    "a list with a long text": {"table": json.dumps(["x" * 101])},
    "a list with an escape": {"table": json.dumps([["\x1b[2J"]])},
    "a deep list": {"table": "[" * 100_000},
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_harm_are_named(tmp_path, name):
    (column,) = list(TEXTS[name])[:1]
    said = submitted(tmp_path, changed(usual_file(), **TEXTS[name]))
    assert any(line.startswith(f"text: column {column} ") for line in said), said


def test_rows_of_a_suite_that_was_never_released_or_has_no_torch_are_named(tmp_path):
    released = files.find("resnet")
    own = [replace(row, suite="resnet", suite_version=released.suite.version, model="mine") for row in usual_file()]
    assert any(line.startswith("line 2, suite_digest is") for line in submitted(tmp_path, own))
    said = submitted(tmp_path, [replace(row, suite_digest=released.digest) for row in own])
    assert any(line.startswith("line 2, model is mine") for line in said)
    named = [replace(row, suite_digest=released.digest, model="resnet18") for row in own]
    assert submitted(tmp_path, named) == []
    said = submitted(tmp_path, [replace(row, torch="", precision_proof="") for row in usual_file()])
    assert any(line.startswith("line 2, torch is empty") for line in said)


def test_a_quality_below_the_goal_is_not_ok(tmp_path):
    suite = files.find("cifar10")
    cells = {"suite": "cifar10", "suite_version": suite.suite.version, "suite_digest": suite.digest}
    cells |= {"model": "speedrun", "data": "cifar10", "accuracy": 0.95, "success_rate": 1.0}
    rows = every(usual_file(mode="full"), **cells)
    assert submitted(tmp_path, rows) == []
    odd = {"suite": "imagenet", "suite_digest": files.find("imagenet").digest, "params": "goal=x", "top5": 0.95}
    for changes in ({"accuracy": 0.93}, {"status": "goal_missed"}, odd):
        said = submitted(tmp_path, changed(rows, success_rate=None, **changes))
        assert any(line.startswith("line 4, status is") for line in said), said


def edit_of(name, cell, rng):
    """Another value of this column: a number that differs, a flag turned round, a text with a letter more."""
    if name in FLAGS:
        return "false" if cell == "true" else "true"
    if name in NUMBERS and cell:
        return rng.choice(["", str(int(cell) + 1) if cell.isdigit() else repr(float(cell) * 1.001 + 1e-9)])
    return rng.choice(["", cell + "x"]) if cell else str(rng.randint(1, 9)) if name in NUMBERS else "x"


@pytest.mark.e2e
def test_no_edited_row_passes_with_its_digest_unchanged(tmp_path):
    """Two hundred edits of one cell each in the rows of a good file: of every column at least once."""
    rng = random.Random(20261124)
    assert submitted(tmp_path, [*usual_file(), *every(usual_file(2, accelerator=True), session="s2")]) == []
    path, edited = tmp_path / "mine.csv", tmp_path / "edited.csv"
    lines = list(csv.reader(path.read_text().splitlines()))
    columns = [*COLUMNS, *rng.choices(COLUMNS, k=200)][:200]
    kinds, passed = Counter(), []
    for name in columns:
        table = [list(line) for line in lines]
        at, line = COLUMNS.index(name), rng.randrange(1, len(lines))
        before = table[line][at]
        table[line][at] = edit_of(name, before, rng)
        assert table[line][at] != before
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(table)
        edited.write_text(out.getvalue())
        kinds["flag" if name in FLAGS else "number" if name in NUMBERS else "text"] += 1
        if not reports([edited])[edited].missing:
            passed.append((name, line, before, table[line][at]))
    assert set(kinds) == {"flag", "number", "text"}
    assert (kinds.total(), passed) == (200, [])


def test_a_listed_card_has_its_limits(tmp_path):
    rows = usual_file(accelerator=True, step=0.02)
    assert submitted(tmp_path, rows) == []
    # 989 TFLOP/s are the dense peak of an H100; its rate is some 350 samples a second.
    said = submitted(tmp_path, every(rows, flops_per_sample=1e13))
    assert any(line.startswith("line 2, samples_per_second is") and "H100" in line for line in said), said
    said = submitted(tmp_path, every(rows, card_memory_bytes=200 * 10**9))
    assert any("card_memory_bytes is" in line and "80GB" in line for line in said), said


def test_an_edited_row_is_named_and_one_without_digest(tmp_path):
    assert submitted(tmp_path, usual_file()) == []
    path = tmp_path / "mine.csv"
    text = path.read_text()
    for old, new in (("AMD EPYC,16", "AMD EPYC,32"), ('""train""', '"train"')):  # also with stray quotes
        path.write_text(text.replace(old, new, 1))
        assert "line 2: changed after gpubench wrote it (row_digest)" in reports([path])[path].missing[0]
    lines = text.splitlines()
    lines[2] = ",".join([*lines[2].split(",")[:-2], "", "end"])
    path.write_text("\n".join(lines) + "\n")
    assert any(line.startswith(f"line 3, {DIGEST} is empty") for line in reports([path])[path].missing)


@pytest.mark.parametrize(("version", "accepted"), [("0.1.0", True), ("0.2.0", False), ("0.3.1", False), ("", False)])
def test_a_digest_is_required_from_0_2_on(tmp_path, version, accepted):
    path = tmp_path / "old.csv"
    records.append(path, every(usual_file(), gpubench=version))
    lines = [line.rsplit(",", 2)[0] + ",end" for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    report = reports([path])[path]
    assert any(DIGEST in line for line in report.missing) != accepted
    assert DIGEST in report.notes[0]


def test_a_missing_file_and_a_column_of_nobody_are_named(tmp_path):
    path = tmp_path / "none.csv"
    assert "cannot be read" in reports([path])[path].missing[0]
    submitted(tmp_path, usual_file())
    path = tmp_path / "mine.csv"
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join(["note," + header, *("jane@example.org," + line for line in lines)]) + "\n")
    assert any(line.startswith("columns: note") for line in reports([path])[path].missing)


def test_no_real_row_has_a_problem():
    """Some files have too few trials, or a first look; nothing else is said, and none copies another."""
    found = reports(sorted((ROOT / "results").glob("*.csv")), [ROOT / "results"])
    said = [line for report in found.values() for line in report.missing]
    assert [line for line in said if not line.startswith("trials: ")] == []


@pytest.mark.parametrize("changes", [{"torch": "2.14.0"}, {"gpubench": "0.2.9"}, {"suite_digest": "d0"}])
def test_trials_of_two_versions_that_take_turns_are_two_cases(tmp_path, changes):
    turns = [
        replace(row, trial=at // 2, seed=42 + at // 2, **(changes if at % 2 else {}))
        for at, row in enumerate(usual_file()[:4])
    ]
    (said,) = submitted(tmp_path, turns)
    assert said.startswith("trials: ")
    assert "2 cases" in said
