"""Rows of a suite that a test runs on this CPU."""

from pathlib import Path

from pandas import DataFrame

from gpubench.rows.read import load


def rows_of_run(run, folder: Path, suite: object, *options: object, code: int = 0, **settings: object) -> DataFrame:
    """Run a suite with `cli` or `cli_process`, check the exit code and return the rows of a.csv in `folder`."""
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    done = run("run", "--suite", suite, "--device", "cpu", *options, *words, "--out", "a.csv")
    assert (folder / "a.csv").exists(), done.stderr
    frame = load([folder / "a.csv"]).frame
    assert done.returncode == code, done.stderr + str(list(frame["reason"]))
    return frame
