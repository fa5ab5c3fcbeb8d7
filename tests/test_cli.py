"""Sizes, durations, suites that do not load: one line of advice and exit code 2."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from facts import lacking
from typer.main import get_command
from typer.testing import CliRunner

from gpubench.analysis.metrics import METRICS
from gpubench.cli import options
from gpubench.cli.app import app
from gpubench.cli.doctor import doctor
from gpubench.cli.options import parse_duration, parse_size
from gpubench.errors import UserError
from gpubench.hardware.advice import Check
from gpubench.hardware.state import Host
from gpubench.runner.options import Options
from gpubench.runner.session import RunSummary
from gpubench.show import formats
from gpubench.suite.files import built_in_names, find
from gpubench.suite.suite import COMMON_PARAMS

invoke = CliRunner().invoke


SIZES = {"11GiB": 11 * 2**30, "2GB": 2 * 10**9, "500 MiB": 500 * 2**20, "1.5kb": 1500}
NO_SIZES = ("", "many", "11 apples", "-1GB", "0", "10", "64", "nanGB", "infGB", "GiB", "0.0001kB")
DURATIONS = {"90s": 90, "10m": 600, "1h30m": 5400, "45": 45, "1.5s": 1.5}
NO_DURATIONS = ("", "soon", "-5s", "0s", "5x", "1d")


@pytest.mark.parametrize(("parse", "good", "bad", "option"), [
    (parse_size, SIZES, NO_SIZES, "--memory-limit"), (parse_duration, DURATIONS, NO_DURATIONS, "--time-limit"),
])  # fmt: skip
def test_sizes_and_durations(parse, good, bad, option):
    assert {text: parse(text) for text in good} == good
    for text in bad:
        with pytest.raises(UserError, match=option):
            parse(text)


def test_list_of_one_suite_shows_all_its_parameters(cli):
    for name in built_in_names():
        text = cli("list", name).stdout
        assert max(map(len, text.splitlines())) <= 79
        assert all(f"--set {param}=" in text for param in {**find(name).suite.params, **COMMON_PARAMS})
    assert "--set image_size=224" in cli("list", "resnet").stdout
    assert "23 models" in invoke(app, ["list"], env={"COLUMNS": "22"}).stdout


@pytest.fixture
def asked(monkeypatch):
    """The Options that `gpubench run` passes on, instead of running them."""
    got: list[Options] = []
    monkeypatch.setattr("gpubench.runner.run.run", lambda options, **_: got.append(options) or RunSummary(0))
    return got


def test_run_asks_for_the_defaults_and_no_option_is_missing_above(asked):
    assert invoke(app, ["run"]).exit_code == 0
    assert asked == [Options()]
    tried = set(shlex.split(" ".join([MANY, REST, UNRANKED, ON_SLURM])))
    flags = {flag for option in get_command(app).commands["run"].params for flag in option.opts}
    assert flags - tried == set()


MANY = (
    "run --suite resnet --suite mine.py --precision fp32,bf16 --models a,b --batch max --device cuda:0,cuda:1"
    " --processes 1,2 --nodes 2 --rendezvous 10.0.0.1:29400 --repeats 3 --full --out x.csv --data d --weights w"
    " --synthetic --session s1 --memory-limit 11GiB --time-limit 1h30m --seed 7 --set epochs=1 --set note=a=b"
    " --tensorboard t --dry-run"
)
REST = "run --until 2% --budget 90s"
QUICK, RANKED, UNRANKED = "run --quick", "run --quick --suite resnet", "run --quick --suite resnet --no-rank"
ON_SLURM = "run --slurm partition=gpu,nodes=4 --seed 9 --out x.csv"


def test_run_passes_every_option_on(asked, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())  # tensorboard need not be installed
    for line in (MANY, REST, QUICK, RANKED, UNRANKED):
        result = invoke(app, shlex.split(line))
        assert result.exit_code == 0, result.output
    assert asked == [
        Options(
            suites=("resnet", "mine.py"), precision="fp32,bf16", models=("a", "b"), batch="max",
            device="cuda:0,cuda:1", processes=(1, 2), nodes=2, rendezvous="10.0.0.1:29400", repeats=3, mode="full",
            out=Path("x.csv"), data=Path("d"), weights=Path("w"), synthetic=True, session="s1",
            memory_limit_bytes=11 * 2**30, time_limit_seconds=5400.0, seed=7,
            settings={"epochs": "1", "note": "a=b"}, tensorboard=Path("t"), dry_run=True,
        ),
        Options(until=0.02, budget_seconds=90.0),
        Options(mode="quick", suites=("reference",), models=("resnet50",)),
        Options(mode="quick", rank=True),
        Options(mode="quick"),
    ]  # fmt: skip


@pytest.mark.parametrize(("line", "words"), [
    ("run resnet", "argument(s) (resnet): write --suite NAME, or --models"),
    *((f"run --{name}=", f"--{name} :") for name in ("until", "memory-limit", "time-limit", "session", "slurm")),
    ("run --seed 9007199254740993", "--seed"),
    ("compare x.csv --baseline a --fail-on-slower=", "--fail-on-slower :"),
])  # fmt: skip
def test_a_suite_without_its_option_and_an_option_without_its_value_are_errors(asked, line, words):
    result = invoke(app, line.split())
    assert (result.exit_code, asked, words in result.output) == (2, [], True)


def test_slurm_gets_the_wishes_and_the_other_options(monkeypatch):
    got = []
    monkeypatch.setattr("gpubench.runner.slurm.run_on_slurm", lambda *told: got.append(told) or 0)
    monkeypatch.setattr("sys.argv", ["gpubench", *shlex.split(ON_SLURM)])
    assert invoke(app, shlex.split(ON_SLURM)).exit_code == 0
    ((job_options, arguments, out),) = got
    assert job_options == {"partition": "gpu", "nodes": 4}
    assert (arguments, out) == (["run", "--seed", "9"], Path("x.csv"))


def test_the_formats_and_metrics_in_help_are_those_there_are():
    assert set(options.METRICS) == set(METRICS)
    assert set(options.FORMATS) == {"terminal", *formats.FORMATS}


@pytest.mark.parametrize("line", [[], *[[name] for name in get_command(app).commands]])
def test_help_fits_80_columns_and_flags_take_no_value(line, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = invoke(app, [*line, "--help"]).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"--(?!help|install|show)\S+ +<bool>", text)
    assert set(re.findall(r"--no-\S+", text)) <= {"--no-rank"}


def test_the_doctors_exit_code_says_whether_there_is_something_to_fix(monkeypatch):
    cpu = {"device": "cpu", "kind": "cpu", "card": "A CPU"}
    facts = {"torch": "2.15.0", "cuda": "", "cudnn": "", "devices": [cpu]}
    quiet = Host(16, "performance", 0.2, "none", True, 64 << 30)
    monkeypatch.setattr("gpubench.hardware.host.host", lambda cpu_count: quiet)
    monkeypatch.setattr("gpubench.runner.process.describe", lambda: facts)
    monkeypatch.setattr("gpubench.hardware.advice.nvidia_cards", list)
    monkeypatch.setattr("gpubench.hardware.advice.ROOMY_BYTES", 1)
    healthy = invoke(app, ["doctor"])
    assert healthy.exit_code == 0
    assert lacking(healthy.stdout, "cpu", "A CPU", "fp32, tf32, fp16, bf16") == []
    assert "FIX" not in healthy.stdout
    cpu["problem"] = "it is on fire"
    ill = invoke(app, ["doctor"])
    assert ill.exit_code == 4
    assert lacking(ill.stdout, "FIX", "cpu", "it is on fire") == []


def test_the_doctor_prints_each_line_as_soon_as_it_knows_it(monkeypatch, capsys):
    seen = []

    def checks(data):
        yield Check("ok", "quick")
        seen.append(capsys.readouterr().out)
        yield Check("fix", "slow", "do this")

    monkeypatch.setattr("gpubench.cli.doctor.checks", checks)
    assert doctor(files=None, against=None, data=None) == 4
    assert (seen, capsys.readouterr().out) == (["ok    quick\n"], "FIX   slow\n        do this\n")


PRINT_COLUMNS = [sys.executable, "-m", "gpubench", "columns"]


def test_a_reader_that_leaves_early_gets_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(PRINT_COLUMNS, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_that_finds_no_space_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(PRINT_COLUMNS, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)
