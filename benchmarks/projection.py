"""How well a sampled trial projects the full run: interleaved pairs, and the interval of their ratio.

    python benchmarks/projection.py --data DIR --suite resnet --model resnet18 --batch 128 --pairs 8 \\
        --set epochs=1 --set image_size=32 --set train_images=12800 --set valid_images=2560

Each pair is one full and one sampled trial of the same case and seed, in fresh processes, in an order
that alternates from pair to pair, so that a drift of the machine hits both alike. Prints a row per pair
and the 95% order-statistic interval of the median of projected / full seconds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from gpubench.analysis.stats import median, median_interval


def seconds_of(mode: str, seed: int, arguments: argparse.Namespace, folder: Path) -> pd.Series:
    """One trial's row."""
    out = folder / f"{mode}-{seed}.csv"
    command = [sys.executable, "-m", "gpubench", "run", "--suite", arguments.suite, "--models", arguments.model]
    command += ["--precision", arguments.precision, "--repeats", "1", "--seed", str(seed), "--out", str(out)]
    command += ["--data", str(arguments.data)]
    command += ["--batch", arguments.batch] if arguments.batch else []
    command += [word for setting in arguments.set for word in ("--set", setting)]
    command += ["--full"] if mode == "full" else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return pd.read_csv(out).iloc[0]


def main() -> None:
    """Run the pairs and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--suite", default="resnet")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--batch", default="", help="the suite's default where it is left out")
    parser.add_argument("--set", action="append", default=[], help="key=value, as for gpubench run; repeatable")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=100, help="another one for more pairs")
    arguments = parser.parse_args()
    ratios, shares = [], []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(arguments.pairs):
            order = ("sampled", "full") if pair % 2 else ("full", "sampled")
            rows = {mode: seconds_of(mode, arguments.first_seed + pair, arguments, Path(folder)) for mode in order}
            full, sampled = rows["full"], rows["sampled"]
            spent = sum(lap[5] for lap in json.loads(sampled.laps) if lap[0] == "train")
            ratios.append(sampled.seconds / full.seconds)
            shares.append(spent / full.train_seconds)
            print(
                f"pair {pair}: full {full.seconds:.1f} s, projected {sampled.seconds:.1f} s,"
                f" ratio {ratios[-1]:.3f}, training share {shares[-1]:.3f}",
                flush=True,
            )
    low, high = median_interval(ratios) or (min(ratios), max(ratios))
    print(
        f"{arguments.suite} {' '.join(arguments.set)}: median projected/full {median(ratios):.3f},"
        f" 95% [{low:.3f}, {high:.3f}], single pairs {min(ratios):.3f} to {max(ratios):.3f}, n={len(ratios)}"
    )


if __name__ == "__main__":
    main()
