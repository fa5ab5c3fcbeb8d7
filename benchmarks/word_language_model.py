"""Does `wordlm` learn and run like the public PyTorch word_language_model example? Article preset, fp32, one epoch.

    python benchmarks/word_language_model.py EXAMPLE --data DIR --part quality --seeds 1,2,3
    python benchmarks/word_language_model.py EXAMPLE --data DIR --part speed --rounds 8

EXAMPLE is the folder `word_language_model` of a checkout of pytorch/examples, DIR a folder with `wikitext-2/`. The
example's main.py runs unchanged in its own process. Both corpora are cut to their first tokens after the vocabulary was
made, so both sides have the whole vocabulary. Quality: the validation perplexity after an epoch, for each seed. Speed:
rounds of both in alternating order. Tokens per second are from the example's log, without its first line, and from our
row. Prints the ratio of each round and the 95% order-statistic interval of their median.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from gpubench.analysis.stats import median, median_interval

BATCH, BPTT, LOG_EVERY = 20, 35, 5

# Runs main.py with the corpus cut; arguments: the example's folder, tokens to keep, then main.py's own.
CUT = """
import runpy, sys
folder, train, valid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, folder)
import data
whole = data.Corpus
class Cut(whole):
    def __init__(self, path):
        super().__init__(path)
        self.train, self.valid, self.test = self.train[:train], self.valid[:valid], self.test[:valid]
data.Corpus = Cut
sys.argv = ["main.py", *sys.argv[4:]]
runpy.run_path(folder + "/main.py", run_name="__main__")
"""


def of_example(seed: int, arguments: argparse.Namespace, folder: Path) -> tuple[float, float]:
    """Return the validation perplexity and the tokens per second of the example."""
    cut = [str(arguments.example), str(arguments.train_tokens), str(arguments.valid_tokens or 10**9)]
    own = ["--data", str(arguments.data / "wikitext-2"), "--epochs", "1", "--seed", str(seed)]
    own += ["--log-interval", str(LOG_EVERY), "--save", str(folder / "model.pt")]
    command = [sys.executable, "-c", CUT, *cut, *own]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    steps = [float(text) for text in re.findall(r"ms/batch\s+([\d.]+)", done.stdout)][1:]
    (perplexity,) = re.findall(r"valid ppl\s+([\d.]+)", done.stdout)
    return float(perplexity), BATCH * BPTT * 1000 * len(steps) / sum(steps)


def of_ours(seed: int, arguments: argparse.Namespace, folder: Path) -> tuple[float, float]:
    """Return the validation perplexity and the tokens per second of a `--full` trial."""
    out = folder / f"{seed}.csv"
    command = [sys.executable, "-m", "gpubench", "run", "--suite", "wordlm", "--models", "lstm", "--device", "cpu"]
    command += ["--precision", "fp32", "--full", "--seed", str(seed), "--data", str(arguments.data), "--out", str(out)]
    command += ["--set", "epochs=1", "--set", f"train_tokens={arguments.train_tokens}"]
    command += ["--set", f"valid_tokens={arguments.valid_tokens}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    row = pd.read_csv(out).iloc[0]
    return float(row.perplexity), float(row.samples_per_second)


def pair(number: int, seed: int, arguments: argparse.Namespace, folder: Path) -> list[tuple[float, float]]:
    """Run both sides; return the example's result and ours. Odd numbers run ours first."""
    runs = [of_example, of_ours]
    order = runs[::-1] if number % 2 else runs
    answers = {run: run(seed, arguments, folder) for run in order}
    return [answers[run] for run in runs]


def main() -> None:
    """Run the pairs of the chosen part and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("example", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--part", choices=("quality", "speed"), default="quality")
    parser.add_argument("--seeds", default="1,2,3", help="of part quality")
    parser.add_argument("--rounds", type=int, default=8, help="of part speed")
    parser.add_argument("--train-tokens", type=int, default=200_000)
    parser.add_argument("--valid-tokens", type=int, default=0, help="0 is all")
    arguments = parser.parse_args()
    quality = arguments.part == "quality"
    seeds = [int(seed) for seed in arguments.seeds.split(",")] if quality else range(arguments.rounds)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds):
            theirs, ours = pair(number, seed, arguments, Path(folder))
            ratios.append(ours[1] / theirs[1])
            print(
                f"seed {seed}: perplexity example {theirs[0]:.2f}, gpubench {ours[0]:.2f};"
                f" tokens/s example {theirs[1]:.0f}, gpubench {ours[1]:.0f}, ratio {ratios[-1]:.3f}",
                flush=True,
            )
    if not quality:
        low, high = median_interval(ratios) or (min(ratios), max(ratios))
        print(f"tokens/s gpubench/example: median {median(ratios):.3f}, 95% [{low:.3f}, {high:.3f}], n={len(ratios)}")


if __name__ == "__main__":
    main()
