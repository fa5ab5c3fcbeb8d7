"""The whole tool on scripted suites: run, resume, interrupt, bad ends, compare. Time is milliseconds here.

One real run is made by every `pytest`; those that are killed are in benchmarks/kills.py (test_benchmarks.py).
"""

import contextlib
import csv
import os
import platform
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from facts import lacking
from inside import run_inside, skip_sleep
from measured_rows import rows_of_run

from gpubench.hardware.environment import cpu_count
from gpubench.rows.write import RowsFile
from gpubench.runner.options import Options
from gpubench.runner.run import run
from gpubench.runner.signals import Interrupts

SUITES = Path(__file__).parent / "suites"


def rows_of(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(10**8)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def lines_in(path: Path) -> int:
    """Lines so far; the writability check makes the file and takes it away again."""
    with contextlib.suppress(FileNotFoundError):
        return len(path.read_text().splitlines())
    return 0


def scripted(out: Path, *more: object) -> tuple[object, ...]:
    return ("run", "--suite", SUITES / "scripted.py", "--device", "cpu", "--out", out, *more)


def test_run_then_compare(cli_process, tmp_path):
    out = tmp_path / "a.csv"
    done = cli_process(*scripted(out, "--precision", "both", "--models", "short", "--repeats", 1))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("next: gpubench compare")
    assert "[1/2]" in done.stderr
    assert "[1/2]" not in done.stdout
    rows = rows_of(out)
    assert rows
    assert {row["status"] for row in rows} == {"ok"}
    assert all(row["laps"] and row["session"] and row["suite_digest"] for row in rows)
    # 5 steps of training and 2 of validation, 5 ms each; a sleep is never shorter than it was asked to be
    assert all(float(row["seconds"]) >= 0.035 for row in rows)
    for row in rows:  # what host they come from, but not its name
        assert float(row["host_reference_seconds"]) > 0
        assert row["container"]
        assert float(row["load_average"]) >= 0
        assert (row["marks"] == "shared") == row["foreign_load"].endswith("% of the CPUs")  # other tests may run
    assert platform.node() not in out.read_text()
    compared = cli_process("compare", out)
    assert compared.returncode == 0, compared.stderr
    assert lacking(compared.stdout, "short", "bf16", "fp32", "1 run each") == []


@pytest.mark.alone
@pytest.mark.skipif(cpu_count() != os.cpu_count(), reason="not all CPUs are ours, so that nobody's load is told")
def test_a_cpu_that_others_use_is_said_and_marked(cli_process, tmp_path):
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(psutil.cpu_count())]
    try:
        done = cli_process(*scripted(tmp_path / "a.csv", "--precision", "fp32", "--models", "short"))
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert re.search(r"CPU is \d+% busy", done.stderr)
    assert {row["marks"] for row in rows_of(tmp_path / "a.csv")} == {"shared"}


INSIDE = {"raises": ("failed", "of the suite"), "out_of_memory": ("out_of_memory", "MemoryError")}
CRASH = {"segfault": ("failed", "SIGSEGV")}
HANG = {"hangs": ("timed_out", "within the time limit")}


@pytest.mark.parametrize(("how", "ends", "limit"), [
    ("cli", INSIDE, "2s"),
    pytest.param("cli_process", CRASH, "10m", marks=pytest.mark.e2e),
    pytest.param("cli_process", HANG, "2s", marks=pytest.mark.e2e),
])  # fmt: skip
def test_every_bad_end_is_a_row_and_exit_4(request, tmp_path, how, ends, limit):
    done = request.getfixturevalue(how)(
        "run", "--suite", SUITES / "bad_ends.py", "--models", ",".join(ends), "--device", "cpu", "--precision", "fp32",
        "--quick", "--time-limit", limit, "--out", "bad.csv",
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    rows = {row["model"]: row for row in rows_of(tmp_path / "bad.csv")}
    assert {model: row["status"] for model, row in rows.items()} == {model: end[0] for model, end in ends.items()}
    assert all(words in rows[model]["reason"] for model, (_, words) in ends.items())
    assert "Traceback" not in done.stderr


def test_runs_that_take_turns_under_one_name_are_one_session_and_a_name_is_a_word(cli, tmp_path):
    for repeats in (1, 2):
        for out in ("old.csv", "new.csv"):
            more = ("--precision", "fp32", "--models", "short", "--repeats", repeats, "--session", "night")
            assert cli(*scripted(tmp_path / out, *more)).returncode == 0
    rows = rows_of(tmp_path / "old.csv") + rows_of(tmp_path / "new.csv")
    assert {row["session"] for row in rows} == {"night"}
    assert [row["trial"] for row in rows] == ["0", "1"] * 2
    done = cli(*scripted(tmp_path / "a.csv", "--session", "my night"))
    assert done.returncode == 2
    assert "letters, digits" in done.stderr


def test_resume_skips_what_is_finished(cli, tmp_path):
    out = tmp_path / "a.csv"
    base = scripted(out, "--precision", "fp32")
    assert cli(*base, "--repeats", 1).returncode == 0
    first = rows_of(out)
    assert cli(*base, "--repeats", 2).returncode == 0
    both = rows_of(out)
    assert both[: len(first)] == first
    assert len(both) == 2 * len(first)
    assert len({row["session"] for row in both}) == 1
    again = cli(*base, "--repeats", 2)
    assert lacking(again.stderr, "all trials are done", "2 trial(s) per case: no verdict") == []
    assert rows_of(out) == both
    planned = cli(*base, "--repeats", 3, "--dry-run")
    assert lacking(planned.stdout, "4 of 6", out, "2 trials") == []


class Accident:
    """Stands in for `run_child`: something happens while trial `number` goes on."""

    def __init__(self, number: int, happens) -> None:
        self.left, self.happens = number, happens

    def __call__(self, task, **options):
        self.left -= task["task"] != "import"
        if self.left < 0:
            self.happens()
        return run_inside(task, **options)


def ctrl_c():
    raise KeyboardInterrupt


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """Runs until Ctrl-C comes in task `at`; returns the exit code and the last line."""
    skip_sleep(monkeypatch)
    monkeypatch.setattr("gpubench.hardware.host.reference_seconds", lambda: 0.1)

    def run_stopped(at: int, **options) -> tuple[int, str]:
        lines: list[str] = []
        usual = {"suites": (str(SUITES / "scripted.py"),), "device": "cpu", "precision": "fp32", "repeats": 3}
        code = run(Options(**usual | options), lines.append, Accident(at, ctrl_c)).exit_code
        return code, lines[-1]

    return run_stopped


def test_ctrl_c_in_a_trial_counts_the_rows_and_says_how_to_go_on(stopped, tmp_path):
    out = tmp_path / "a.csv"
    code, line = stopped(2, out=out)
    assert (code, lacking(line, "2 of 6", out)) == (130, [])
    assert [row["status"] for row in rows_of(out)] == ["ok"] * 2 + ["interrupted"] * 4
    code, line = stopped(1, out=out)
    assert (code, lacking(line, "3 of 6", out)) == (130, [])
    code, line = stopped(1, out=tmp_path / "b.csv", batch="fastest")  # in a batch search
    assert (code, lacking(line, "0 of 6", "b.csv")) == (130, [])
    code, line = stopped(0, out=tmp_path / "folder")
    (out,) = (tmp_path / "folder").glob("*.csv")
    assert (code, lacking(line, "0 of 6", f"--out {out}"), len(rows_of(out))) == (130, [], 2)  # the first round's


def test_ctrl_c_before_the_first_trial(stopped, tmp_path, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("gpubench.hardware.host.reference_seconds", interrupted)
    code, line = stopped(9, out=tmp_path / "a.csv")
    assert (code, lacking(line, "no row")) == (130, [])
    assert not (tmp_path / "a.csv").exists()


def test_ctrl_c_while_a_row_is_written_is_kept_until_it_is(stopped, tmp_path, monkeypatch):
    handlers = {number: signal.getsignal(number) for number in Interrupts.SIGNALS}
    append = RowsFile.append
    monkeypatch.setattr(RowsFile, "append", lambda *given: append(*given) or signal.raise_signal(signal.SIGINT))
    code, line = stopped(9, out=tmp_path / "a.csv", models=("short",), repeats=1)  # one trial, which is the last
    assert (code, lacking(line, "1 of 1", "a.csv")) == (130, [])
    for number, before in handlers.items():
        signal.signal(number, before)
    with Interrupts() as interrupts:
        with interrupts.delayed():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.ignore()
        signal.raise_signal(signal.SIGINT)  # while the rows of a stopped run are written
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # a second Ctrl-C cannot cut the end short
    for number, before in handlers.items():
        signal.signal(number, before)


def test_a_second_run_on_a_file_is_refused_before_it_trains(cli, tmp_path, monkeypatch):
    out = tmp_path / "a.csv"
    monkeypatch.setattr("gpubench.runner.run.run", partial(run, run_child=Accident(0, ctrl_c)))  # no child may start
    with RowsFile(out):
        done = cli(*scripted(out))
        assert done.returncode == 2
        assert f"--out {out}: " in done.stderr
        assert "is writing it; wait for its end or give another --out" in done.stderr
        assert "trials at most, about" in cli(*scripted(out, "--dry-run")).stdout
    assert not out.exists()


def test_a_file_that_is_taken_away_meanwhile_ends_the_run_with_4_and_both_names(cli, tmp_path, monkeypatch):
    out = tmp_path / "a.csv"
    base = scripted(out, "--precision", "fp32", "--repeats", 2)
    with monkeypatch.context() as patched:
        accident = Accident(2, lambda: out.write_text("name,price\nbread,3\n"))
        patched.setattr("gpubench.runner.run.run", partial(run, run_child=accident))
        done = cli(*base)
    (rescue,) = tmp_path.glob("a.rescued-*.csv")
    assert done.returncode == 4
    assert lacking(done.stderr, out, "1 row", rescue) == []
    assert accident.left == -1  # nothing more was trained
    assert out.read_text() == "name,price\nbread,3\n"
    out.unlink()
    rescue.rename(out)
    assert cli(*base).returncode == 0
    assert sorted((row["model"], row["trial"]) for row in rows_of(out)) == [
        ("long", "0"), ("long", "1"), ("short", "0"), ("short", "1"),
    ]  # fmt: skip


def test_runs_that_begin_in_the_same_second_have_files_of_their_own(cli, tmp_path):
    for _ in range(2):
        assert cli(*scripted(tmp_path, "--precision", "fp32", "--models", "short", "--quick")).returncode == 0
    assert [len(rows_of(path)) for path in (tmp_path / "quick").iterdir()] == [1, 1]


def test_a_torn_last_line_is_sealed_and_its_trial_runs_again(cli, tmp_path):
    out = tmp_path / "a.csv"
    base = scripted(out, "--precision", "fp32", "--repeats", 2)
    assert cli(*base).returncode == 0
    whole = rows_of(out)
    out.write_bytes(out.read_bytes()[:-40])
    done = cli(*base)
    assert done.returncode == 0, done.stderr
    assert "torn" in done.stderr
    compared = cli("compare", out)
    assert compared.returncode == 3  # one precision of one card: nothing to compare with
    assert "torn" in compared.stderr
    key = [(row["model"], row["trial"]) for row in whole]
    lines = out.read_text().splitlines()
    assert len(lines) == 1 + len(whole) + 1
    assert sorted(key) == sorted((r["model"], r["trial"]) for r in rows_of(out) if r["end"] == "end")


@pytest.mark.e2e
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_and_keeps_what_is_finished(tmp_path, end):
    out = tmp_path / "a.csv"
    command = [sys.executable, "-m", "gpubench"]
    command += map(str, scripted(out, "--precision", "fp32", "--repeats", 50))
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and lines_in(out) <= 2:
        time.sleep(0.05)
    os.kill(process.pid, end)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert re.search(r"\d+ of 100 trials .*a\.csv", err.splitlines()[-1])
    statuses = [row["status"] for row in rows_of(out)]
    assert set(statuses) == {"ok", "interrupted"}
    assert statuses == sorted(statuses, key=["ok", "interrupted"].index)


WHAT_A_CHILD_HAS = """
from gpubench.suite.suite import Suite


def train(trial, clock):
    import random
    import sched  # not the file of this name beside us

    print("a line of the suite", random.random(), flush=True)
    held = b"x" * {many}
    for _ in clock.epochs(1):
        for _ in clock.steps([[0]] * 3, "train"):
            pass
    return {{}}


SUITE = Suite(train=train, models=("m", "n"), params={{}}, version=1, torch=False)
"""


@pytest.mark.e2e
def test_what_a_child_prints_is_shown_and_its_numbers_are_the_seeds(cli_process, tmp_path):
    (tmp_path / "sched.py").write_text("raise ImportError('the wrong one')")
    (tmp_path / "mine.py").write_text(WHAT_A_CHILD_HAS.format(many=10))
    done = cli_process("run", "--suite", "mine.py", "--device", "cpu", "--precision", "fp32", "--quick", "--repeats", 2)
    printed = re.findall(r"a line of the suite (\S+)", done.stderr)
    assert len(printed) == 4, done.stderr
    assert len(set(printed)) == 2, "both models have the seed of their round"


@pytest.mark.e2e
def test_a_cpu_trial_above_the_memory_limit_is_out_of_memory(cli_process, tmp_path):
    (tmp_path / "mine.py").write_text(WHAT_A_CHILD_HAS.format(many=2**31))  # 2 GiB
    options = ("--models", "m", "--quick", "--memory-limit", "1GiB")
    row = rows_of_run(cli_process, tmp_path, "mine.py", *options, code=4).iloc[0]
    assert (row["status"], lacking(row["reason"], "(1,024 MiB)", "; give a smaller --batch")) == ("out_of_memory", [])


SMALL = {
    "wordlm": {"train_tokens": 4000, "valid_tokens": 400},
    "cifar10": {"train_images": 64, "valid_images": 16},
    "tricks": {"width": 4, "train_images": 64, "valid_images": 16, "test_images": 16},
}


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("suite", "model"),
    [
        ("wordlm", "lstm"),
        *(pytest.param(*names, marks=pytest.mark.slow) for names in (("cifar10", "resnet9"), ("tricks", "loading"))),
    ],
)
def test_a_suite_trains_in_a_child_of_its_own(cli_process, tmp_path, suite, model):
    """Those that no other test of processes trains."""
    options = ("--models", model, "--precision", "fp32", "--quick", "--synthetic", "--batch", 16)
    assert list(rows_of_run(cli_process, tmp_path, suite, *options, **SMALL[suite])["status"]) == ["ok"]


def test_dry_run_prints_the_plan_and_writes_nothing(cli, tmp_path):
    (folder := tmp_path / "folder.csv").mkdir()
    done = cli(*scripted(folder, "--dry-run"))
    assert (done.returncode, "rounds" in done.stdout) == (0, True), done.stderr
    assert f"rows would go to {folder}/" in done.stdout
    assert re.search(r"24 trials.* 6 min.* \d\d:\d\d", done.stdout)
    assert list(tmp_path.rglob("*")) == [folder]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--suite", "resnets"), "no such suite"),
        (("run", "--suite", SUITES / "scripted.py", "--precision", "fp7"), "no such precision"),
        (("run", "--quick", "--full"), "--full"),
        (("run", "--repeats", "0"), "--repeats"),
        (("run", "--processes", "²"), "--processes ²: give a number above 0"),
        (("run", "--set", "nonsense"), "key=value"),
        (("run", "--suite", "resnet", "--device", "cpu", "--data", "nowhere"), "nowhere"),
        (("compare",), "files"),
        (("compare", "missing.csv"), "missing.csv"),
        (("run", "--suite", SUITES / "scripted.py", "--device", "cuda:99"), "not on this machine"),
        (("run", "--suite", SUITES / "scripted.py", "--out", "/proc/nothing/a.csv"), "cannot write"),
        (("data", "fetch", "mnist"), "mnist"),
        (("run", "--until", "1%", "--repeats", "8"), "leave out --repeats"),
        (("run", "--until", "1%", "--quick"), "leave out --quick"),
        (("run", "--budget", "20m"), "--budget is for --until"),
        (("run", "--until", "1%", "--budget", "soon"), "--budget soon: write it as"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(cli, tmp_path, arguments, words):
    done = cli(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_row_names_neither_user_nor_home(cli, tmp_path):
    out = tmp_path / "a.csv"
    leaky = tmp_path / "leaky.py"
    leaky.write_text(
        '''"""Leaks."""
from pathlib import Path
from gpubench.suite.suite import Suite


def train(trial, clock):
    raise FileNotFoundError(Path.home() / "secret.bin")


SUITE = Suite(train=train, models=("m",), params={}, version=1, torch=False)
'''
    )
    cli("run", "--suite", leaky, "--device", "cpu", "--precision", "fp32", "--quick", "--out", out)
    assert "~/secret.bin" in rows_of(out)[0]["reason"]
