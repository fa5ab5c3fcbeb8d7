"""Does it matter that a trial is a fork? Compares trials of resnet as forks of a template with new processes.

    python benchmarks/forked_against_fresh.py --data DIR --pairs 12

Each pair has one trial of each kind, in alternating order, each in its own run (and so with its own template). Prints
the ratio of forked to fresh for the rates and the memory in a row: geometric mean and 95% t-interval over the pairs.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, stdev

import pandas as pd

from gpubench.runner import template
from gpubench.runner.options import Options
from gpubench.runner.process import run_child
from gpubench.runner.run import run
from gpubench.welch import t_quantile

FIGURES = ("samples_per_second", "resident_samples_per_second", "seconds", "setup_seconds", "peak_memory_bytes")
SETTINGS = {"image_size": "32", "train_images": "2000", "valid_images": "400"}


def row_of(options: Options, *, forked: bool) -> pd.Series:
    """Return the row of one trial."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.csv"
        run(replace(options, out=out), lambda line: None, None if forked else run_child)
        row = pd.read_csv(out).iloc[0]
    assert row["start"] == ("forked" if forked else "fresh"), row["start"]
    return row


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean of the ratios and its 95% interval."""
    logs = [log(ratio) for ratio in ratios]
    half = t_quantile(len(logs) - 1, 0.975) * stdev(logs) / sqrt(len(logs))
    return exp(fmean(logs)), exp(fmean(logs) - half), exp(fmean(logs) + half)


def main(arguments: list[str] | None = None) -> int:
    """Run the pairs and print a line per figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with CIFAR-100; without it the data are synthetic")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--model", default="resnet18")
    wanted = parser.parse_args(arguments)
    template.NOT_FORKED = ()
    ratios: dict[str, list[float]] = {figure: [] for figure in FIGURES}
    for pair in range(wanted.pairs):
        options = Options(
            models=(wanted.model,), precision=wanted.precision, device="cpu", repeats=1, settings=SETTINGS, peaks=False,
            data=wanted.data, synthetic=wanted.data is None, seed=pair,
        )  # fmt: skip
        order = (True, False) if pair % 2 else (False, True)
        rows = {forked: row_of(options, forked=forked) for forked in order}
        for figure, values in ratios.items():
            values.append(float(rows[True][figure]) / float(rows[False][figure]))
        marks = " ".join(str(rows[forked]["marks"]) for forked in order)
        print(f"pair {pair}: {ratios['samples_per_second'][-1]:.4f} {marks}", flush=True)
    for figure, values in ratios.items():
        value, low, high = interval(values)
        print(f"{figure:28} forked / fresh {value:.4f} ({low:.4f} to {high:.4f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
