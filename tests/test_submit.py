"""`gpubench submit` names what a file lacks and what speaks against its rows, and has nothing to say of a good one."""

import importlib.util
import json
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from made_trials import USUAL, made_row, usual_file
from typer.testing import CliRunner

from gpubench.cli.app import app
from gpubench.rows import write as records
from gpubench.rows.read import Place
from gpubench.rows.row import COLUMNS, NUMBERS
from gpubench.submit import figures, limits, replay
from gpubench.submit.check import reports
from gpubench.submit.entry import entry_of

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
    assert "note: AMD EPYC: no peak is listed for it" in done.output


@pytest.mark.parametrize("mode", ["sampled", "full", "quick"])
@pytest.mark.parametrize("accelerator", [False, True])
def test_nothing_speaks_against_what_the_clock_made(mode, accelerator):
    """Whatever the pace, the noise, stages, a goal that was met, a kill, a second process, sensors that settle late."""
    for seed in range(25):
        row = made_row(mode, random.Random(seed), accelerator=accelerator, world=1 + seed % 2)
        empty = {name: float("nan") if name in NUMBERS else "" for name in COLUMNS}
        cells = {name: empty[name] if value is None else value for name, value in asdict(row).items()}
        entry = entry_of(Place(Path("a.csv"), seed, COLUMNS), cells)
        assert [*limits.doubts(entry), *figures.doubts(entry), *replay.doubts(entry)] == [], seed


LACKING = {
    "no system": ({"os": ""}, "6 row(s) without os"),
    "an edited checkout": ({"commit": "abc+"}, "edited checkout"),
    "a folder": ({"reason": "no file /home/jane/data"}, "column reason holds a folder of a user"),
    "an e-mail address": ({"params": "epochs=1 mail=jane@example.org"}, "an e-mail address"),
    "a network address": ({"cpu": "host 10.1.2.3"}, "an address of a network"),
    "a source": ({"source": "github.com/x"}, "6 row(s) with a source that are not published figures"),
    "no card": ({"source": "github.com/x", "card": ""}, "published figure without card"),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_is_missing_is_named(tmp_path, name):
    changes, words = LACKING[name]
    assert any(words in line for line in submitted(tmp_path, every(usual_file(), **changes)))
    assert CliRunner().invoke(app, ["submit", str(tmp_path / "mine.csv")]).exit_code == 4


def laps_where(change):
    """Changes the laps of a cell."""

    def new(text):
        laps = json.loads(text)
        change(laps)
        return json.dumps(laps, separators=(",", ":"))

    return new


def slower(by):
    def change(laps):
        for lap in laps:
            lap[5:] = [round(each * by, 6) for each in lap[5:]]

    return laps_where(change)


TIMES = {
    **dict.fromkeys(
        [
            "seconds",
            "seconds_low",
            "seconds_high",
            "train_seconds",
            "valid_seconds",
            "setup_seconds",
            "startup_seconds",
        ],
        lambda value: float(f"{value * 0.7:.6g}"),
    ),
    **dict.fromkeys(["samples_per_second", "resident_samples_per_second"], lambda value: float(f"{value / 0.7:.6g}")),
    "laps": slower(0.7),
}
FORGED = {
    "a thousandth of the seconds": ({"seconds": lambda value: value / 1000}, "line 4, seconds: it says"),
    "a rate": ({"samples_per_second": lambda value: value * 1e6}, "line 4, samples_per_second: it says"),
    "training": ({"train_seconds": lambda value: value * 0.99}, "line 4, train_seconds: it says"),
    "validation": ({"valid_seconds": lambda value: value * 0.99}, "line 4, valid_seconds: it says"),
    "a stall": ({"data_stall": 0.5}, "line 4, data_stall: it says 0.5; its"),
    "samples": ({"samples": 8}, "line 4, samples: it says 8; its laps give"),
    "no laps": ({"laps": ""}, "line 4, laps: it says nothing; and every row that is taken says it"),
    "laps of nothing": ({"laps": "[]"}, "line 4, laps: it says []"),
    "laps that are none": ({"laps": '[["train",0,"timed",1,8,-1,0]]'}, "line 4, laps: it says"),
    "laps in another order": ({"laps": laps_where(lambda laps: laps.reverse())}, "line 4, laps: it says"),
    "rounded laps": (
        {"laps": laps_where(lambda laps: [lap.__setitem__(5, round(lap[5], 3)) for lap in laps])},
        "rounder than measured ones",
    ),
    "all times": (TIMES, "line 4, laps: it says"),
    "how steady": ({"steady": "flat: last 4 laps within 0.1% after 5 warm-up laps, 0.2 s"}, "line 4, steady: it says"),
    "a swapped band": ({"seconds_low": 1e6, "seconds_high": 1.0}, "line 4, seconds: it says"),
    "a band of its own": ({"seconds_low": lambda value: value * 1.01}, "line 4, seconds_low: it says"),
    "no band": ({"seconds_low": None, "seconds_high": None}, "line 4, seconds_low: it says nothing"),
    "no proof": ({"precision_proof": ""}, "line 4, precision_proof: it says nothing"),
    "another precision": ({"precision": "bf16"}, "line 4, precision: it says bf16"),
    "no such precision": ({"precision": "int4"}, "line 4, precision: it says int4; and has to be fp32"),
    "a precision of cards": ({"precision": "tf32"}, "line 4, precision: it says tf32"),
    "an error": ({"precision_error": 1e-9}, "line 4, precision_error: it says 1e-09"),
    "a card": ({"card": "NVIDIA GeForce RTX 5090"}, "the device is a CPU, and it is AMD EPYC"),
    "2099": ({"started": "2099-01-01T00:00:00+00:00"}, "started: it says 2099-01-01T00:00:00+00:00; which is in the"),
    "1999": ({"started": "1999-01-01T00:00:00+00:00"}, "which is before gpubench was there"),
    "no time": ({"started": "yesterday"}, "line 4, started: it says yesterday; and has to be a time"),
    "a start within another trial": ({"started": "2026-11-21T10:00:01+00:00"}, "started: it says"),
    "more memory than there is": ({"peak_memory_bytes": 2**40}, "line 4, peak_memory_bytes: it says"),
    "memory in no pages": ({"peak_memory_bytes": 7 * 2**28 + 1}, "those of other rows are whole pages"),
    "no FLOPs": ({"flops_per_sample": None}, "line 4, flops_per_sample: it says nothing"),
    "more FLOPs": ({"flops_per_sample": 3e6}, "line 4, flops_per_sample: it says 3e+06; line 2, which is alike"),
    "beyond its peak": ({"measured_peak_flops": 1e5}, "FLOP/s, and the peak measured on the card is 100000"),
    "another batch": ({"batch_size": 16}, "line 4, batch_size: it says 16"),
    "another step": ({"step_samples": 16}, "a resident step of its laps has 8 a process"),
    "a mark": ({"marks": "unsteady"}, "line 4, marks: it says unsteady; not unsteady is what other columns say"),
    "power": ({"mean_power_watts": 250.0}, "line 4, mean_power_watts: it says 250; energy and laps give nothing"),
    "a mode": ({"mode": "thorough"}, "line 4, mode: it says thorough; and has to be sampled, full, quick"),
    "a trial again": ({"trial": 1}, "line 4, trial: it says 1; line 3 is the same trial of the same case"),
    "another CPU": ({"cpu_count": 64}, "line 4, cpu_count: it says 64; line 2, which is alike, says 16"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_row_is_named_with_line_column_and_what_follows(tmp_path, name):
    changes, words = FORGED[name]
    rows = changed(usual_file(), **changes)
    said = submitted(tmp_path, rows)
    assert any(words in line for line in said), said


def test_what_all_rows_say_is_named_once_with_its_first_lines(tmp_path):
    said = submitted(tmp_path, every(usual_file(), samples=8))
    own = [line for line in said if "samples" in line]
    assert [line.partition(":")[0] for line in own] == [f"line {n}, samples" for n in (2, 3, 4)] + ["samples"]
    assert own[-1] == "samples: the same of 3 more lines"


@pytest.mark.parametrize("status", ["ok", "goal_missed"])
def test_a_run_that_missed_its_goal_is_examined_as_others_are(tmp_path, status):
    said = submitted(tmp_path, changed(usual_file(), status=status, samples=8))
    assert any(line.startswith("line 4, samples") for line in said)


def test_a_row_six_times_is_no_six_trials(tmp_path):
    rows = usual_file()
    copies = [replace(rows[0], trial=each.trial, seed=each.seed, started=each.started) for each in rows]
    assert any("laps: it says" in line and "which is what line 2 has" in line for line in submitted(tmp_path, copies))


def test_a_row_times_a_factor_is_a_copy(tmp_path):
    rows = usual_file()
    copy = replace(
        rows[0], trial=6, seed=48, **{name: change(getattr(rows[0], name)) for name, change in TIMES.items()}
    )
    said = submitted(tmp_path, [*rows, copy])
    assert any("line 8, laps" in line and "what line 2 has, times one factor" in line for line in said)


def test_a_renamed_card_is_seen_beside_the_true_rows(tmp_path):
    true, other = usual_file(), every(usual_file(), card="AMD Ryzen 9", cpu="AMD Ryzen 9")
    assert submitted(tmp_path, other) == []  # alone nothing tells
    records.append(tmp_path / "true.csv", true)
    found = reports([tmp_path / "true.csv", tmp_path / "mine.csv"])
    assert found[tmp_path / "true.csv"].missing == []
    assert "which is what" in found[tmp_path / "mine.csv"].missing[0]
    assert "true.csv, line 2 has" in found[tmp_path / "mine.csv"].missing[0]


def test_a_listed_card_has_its_limits(tmp_path):
    rows = usual_file(accelerator=True, step=0.02)
    assert submitted(tmp_path, rows) == []
    # 989 TFLOP/s are the dense peak of an H100; its rate is some 350 samples a second.
    said = submitted(tmp_path, every(rows, flops_per_sample=1e13))
    assert any("FLOP/s, and H100" in line and "is specified for" in line for line in said), said
    said = submitted(tmp_path, every(rows, card_memory_bytes=200 * 10**9))
    assert any("card_memory_bytes: it says" in line and "the card's name says 80GB" in line for line in said), said


def test_an_edited_row_is_named_and_one_without_digest(tmp_path):
    assert submitted(tmp_path, usual_file()) == []
    path = tmp_path / "mine.csv"
    text = path.read_text()
    path.write_text(text.replace("AMD EPYC,16", "AMD EPYC,32", 1))
    assert any("line 2: changed after gpubench wrote it (row_digest)" in line for line in reports([path])[path].missing)
    lines = text.splitlines()
    lines[2] = ",".join([*lines[2].split(",")[:-2], "", "end"])
    path.write_text("\n".join(lines) + "\n")
    assert (
        "line 3, row_digest: it says nothing; 1 row(s) lack what gpubench writes in each"
        in reports([path])[path].missing
    )


def test_rows_without_any_digest_are_older_and_that_is_said(tmp_path):
    path = tmp_path / "old.csv"
    records.append(path, usual_file())
    lines = [line.rsplit(",", 2)[0] + ",end" for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    report = reports([path])[path]
    assert report.missing == []
    assert "no row_digest: of an older gpubench, or taken away" in report.notes[0]


def test_no_file_at_all(tmp_path):
    path = tmp_path / "none.csv"
    assert "cannot be read" in reports([path])[path].missing[0]


def test_each_number_of_processes_needs_its_trials(tmp_path):
    for number in (1, 2, 4):
        rows = [replace(row, processes=processes) for row in usual_file()[:2] for processes in range(1, number + 1)]
        (said,) = (line for line in submitted(tmp_path, rows) if "has 2 of the 6" in line)
        assert said.endswith(f"({number} cases)" if number > 1 else "needs")


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.csv")), ids=lambda path: path.stem)
def test_no_real_row_is_doubted(path):
    """Some of them are too few trials, or a first look; nothing else is said."""
    found = reports([path])[path].missing
    assert [line for line in found if not line.startswith("trials: ")] == []


def test_forgeries_of_real_rows(tmp_path):
    """What `benchmarks/forgeries.py` shows of 500: with the digest as it was none passes."""
    spec = importlib.util.spec_from_file_location("forgeries", ROOT / "benchmarks" / "forgeries.py")
    forgeries = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(forgeries)
    made, passed = forgeries.run(40, 1, digest=False)
    assert (made.total(), dict(passed)) == (40, {})
    made, passed = forgeries.run(42, 1, digest=True)
    assert sum(map(len, passed.values())) <= 0.2 * made.total()
    assert [kind for kind in ("copied", "shuffled") if passed[kind]] == []


def test_the_usual_training_is_what_the_tests_take_it_for():
    assert USUAL["epochs"] == 2
    assert {row.measured for row in usual_file()} == {"projected"}
