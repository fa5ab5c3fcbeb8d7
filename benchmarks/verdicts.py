"""Does `compare` tell equal cases apart, and does it find a known slowdown? ResNet-18 on real CIFAR-100.

    python benchmarks/verdicts.py --data DIR --sessions 5 --rounds 10 --pad 0.1

Each session is one `gpubench run` with interleaved trials of three cases: `a` and `b` are the same; `padded` pauses
after each training step for a share of its time, and waking up costs a little more. Prints each session's verdicts as
`gpubench compare` gives them, and the sd of log seconds between the processes of a case, for which
docs/research/tested.md has the power.
"""

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean, stdev

from gpubench.analysis.compare import Question, compare_rows, load_rows

SUITE = Path(__file__).with_name("padded_resnet.py")


def session(number: int, arguments: argparse.Namespace, out: Path) -> None:
    """Run interleaved trials of the three cases and write their rows to `out`."""
    command = [sys.executable, "-m", "gpubench", "run", "--suite", str(SUITE), "--precision", arguments.precision]
    command += ["--batch", "128", "--device", arguments.device, "--data", str(arguments.data), "--out", str(out)]
    command += ["--repeats", str(arguments.rounds), "--seed", str(number)]
    for setting in ("image_size=32", "epochs=1", "train_images=1280", "valid_images=256", f"pad={arguments.pad}"):
        command += ["--set", setting]
    for setting in arguments.set:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)


def main() -> None:
    """Run the sessions and print their verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pad", type=float, default=0.1)
    parser.add_argument("--set", action="append", default=[], help="key=value, as for gpubench run; repeatable")
    arguments = parser.parse_args()
    deviations = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.sessions):
            out = Path(folder) / f"{number}.csv"
            session(number, arguments, out)
            loaded = load_rows([out])
            found = {c.subject_name: c for c in compare_rows(loaded, Question(by="model", baseline="a")).comparisons}
            for name in ("b", "padded"):
                ratio = found[name].ratio
                interval = f"[{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.low and ratio.high else "[]"
                print(f"session {number}: {name} {found[name].verdict}, ratio {ratio.value:.3f} {interval}", flush=True)
            own = [stdev(map(math.log, trials["seconds"])) for _, trials in loaded.frame.groupby("model")]
            print(f"session {number}: sd of log seconds between processes {fmean(own):.3f}", flush=True)
            deviations += own
    print(f"sd of log seconds between processes: mean {fmean(deviations):.3f}, of {len(deviations)} cases")


if __name__ == "__main__":
    main()
