"""Sizes, durations, suites that do not load: one line of advice and exit code 2."""

import pytest

from gpubench.cli import parse_duration, parse_size
from gpubench.errors import UserError


@pytest.mark.parametrize(
    ("text", "size"),
    [("11GiB", 11 * 2**30), ("2GB", 2 * 10**9), ("500 MiB", 500 * 2**20), ("1.5kb", 1500), ("64", 64)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "many", "11 apples", "-1GB", "0", "nanGB", "infGB", "GiB"])
def test_bad_sizes(text):
    with pytest.raises(UserError, match="--memory-limit"):
        parse_size(text)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("45", 45), ("1.5s", 1.5)])
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5s", "0s", "5x", "1d"])
def test_bad_durations(text):
    with pytest.raises(UserError, match="--time-limit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def train(:\n", "line 1"),
        ("x = 1\n", "defines no SUITE"),
        ("import nothing_like_this\n", "ModuleNotFoundError"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("from gpubench.suite import Suite\nSUITE = Suite(print, (), {}, 1)\n", "no model"),
    ],
)
def test_suite_files_that_do_not_load(cli, tmp_path, source, words):
    (tmp_path / "bad.py").write_text(source)
    done = cli("run", "--suite", "bad.py", "--device", "cpu")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--repeats", "0"),
        ("run", "--set", "nonsense"),
        ("run", "--flag-that-is-not"),
        ("compare",),
        ("data", "fetch", "mnist"),
        ("compare", "missing.csv"),
    ],
)
def test_mistakes_exit_2_without_a_traceback(cli, arguments):
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_data_that_cannot_be_had_names_both_ways_out(cli, tmp_path):
    done = cli(
        "run", "--suite", "resnet", "--device", "cpu", "--data", "nowhere",
    )  # fmt: skip
    assert done.returncode == 2
    assert "no such folder" in done.stderr


def test_list_shows_models_and_parameters(cli):
    done = cli("list")
    assert "resnet152" in done.stdout
    assert "--set image_size=224" in done.stdout
