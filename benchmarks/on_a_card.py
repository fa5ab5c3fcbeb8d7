"""What the documentation states of a CPU, tried on a card: stages of minutes, their logs and rows, and a table.

    python benchmarks/on_a_card.py --data DIR --out card                  # at most 15 minutes a stage
    python benchmarks/on_a_card.py --data DIR --out card --stages tests,selftest,resnet

A stage is what a user would type. Its output goes to OUT/STAGE.log, its rows to OUT/STAGE.csv, and how it ended to a
line of OUT/stages.csv. What ended well is not run again; what failed or what `--minutes` cut off goes on from its rows.
`--seconds` ends all after that long. Without `--data` the images and texts are made up, and nothing is trained to a
goal. `--device cpu --small` tries the script itself where there is no card.
"""

import argparse
import csv
import signal
import subprocess
import sys
import time
from pathlib import Path

STAGES = {
    "doctor": "gpubench doctor",
    "tests": "pytest -q -n 0 -m gpu",
    "peak": "gpubench peak --device DEVICE",
    "selftest": "gpubench selftest --device DEVICE",
    # Every precision once, at the largest batch and at 224 pixels, as in the article; then six rounds of both.
    "precisions": "gpubench run --suite resnet --models resnet50 --precision all --repeats 1",
    "resnet": "gpubench run --suite resnet --models resnet18 --precision both",
    "fastest": "gpubench run --suite resnet --models resnet18 --precision mixed --batch fastest --repeats 1",
    "limited": "gpubench run --suite resnet --models resnet18 --precision both --memory-limit 11GiB --repeats 1",
    "wordlm": "gpubench run --suite wordlm --precision all --repeats 1",
    "ladder": "gpubench run --suite cifar10 --precision fp16-pure --repeats 1",
    "speedrun": "gpubench run --suite cifar10 --models speedrun --precision mixed --full"
    " --set compile=true --set runs_per_process=5",
    "imagenet": "gpubench run --suite imagenet --models resnet50 --precision both --repeats 1 --synthetic",
    "scaling": "gpubench run --suite scaling --models allreduce,resnet50 --precision mixed --repeats 1",
    "largebatch": "gpubench run --suite largebatch --precision both --full",
    "tricks": "gpubench run --suite tricks --repeats 1",
    # A whole run of minutes, and what samples say of it.
    "full": "gpubench run --suite resnet --models resnet18 --precision mixed --batch 512 --set epochs=3 --full",
    "sampled": "gpubench run --suite resnet --models resnet18 --precision mixed --batch 512 --set epochs=3 --repeats 3",
    "compare": "gpubench compare OUT --why --charts OUT/charts",
}
# What --small adds: the least that still goes through every line; a CPU's fp16 takes minutes.
SMALL = {
    "resnet": "--quick --models resnet18 --precision fp32,bf16 --batch 8 --set image_size=32",
    "wordlm": "--quick --precision fp32,bf16 --set train_tokens=20000 --set valid_tokens=2000",
    "cifar10": "--quick --precision bf16 --set train_images=2000 --set valid_images=1000",
    "imagenet": "--quick --models resnet18 --set phases=tiny --batch 8",
    "scaling": "--quick --models resnet50 --set image_size=64",
    "largebatch": "--quick --set train_images=2000 --set valid_images=500",
    "tricks": "--quick --set train_images=2000 --set valid_images=500",
}


def command_of(stage: str, options: argparse.Namespace) -> list[str]:
    """The stage's command, for this device and this data."""
    words = STAGES[stage].split()
    if words[1] == "run":
        words += ["--device", "DEVICE", "--out", f"OUT/{stage}.csv"]
        if "--synthetic" not in words:
            words += ["--data", str(options.data)] if options.data else ["--synthetic"]
        if options.small:
            words = [word for word in words if word != "--full"] + SMALL[words[3]].split()
    return [
        sys.executable,
        "-m",
        *(_filled(word, options) for word in words),
    ]


def _filled(word: str, options: argparse.Namespace) -> str:
    head, slash, rest = word.partition("/")
    return {"DEVICE": options.device, "OUT": options.out}.get(head, head) + slash + rest


def outcome(command: list[str], seconds: float, log: Path) -> str:
    """Its exit code, or that it was cut off after so many seconds."""
    with log.open("a") as file:
        print("$", *command, file=file, flush=True)
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            return str(process.wait(seconds))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # as Ctrl-C: what is finished stays, and nothing is left running
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
            return "cut off"


def main() -> None:
    """Go on where stages.csv ends; print each stage's line, and the end of its log where it went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--stages", default=",".join(STAGES), help="names joined by commas")
    parser.add_argument("--minutes", type=float, default=15, help="longest that a stage may take")
    parser.add_argument("--seconds", type=float, default=1e9, help="longest that all may take")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    ends = folder / "stages.csv"
    if not ends.exists():
        ends.write_text("stage,ended,seconds\n")
    done = {line["stage"] for line in csv.DictReader(ends.open()) if line["ended"] == "0"}
    until = time.monotonic() + options.seconds
    for stage in options.stages.split(","):
        began = time.monotonic()
        if stage in done or began >= until:
            continue
        log = folder / f"{stage}.log"
        ended = outcome(command_of(stage, options), min(60 * options.minutes, until - began), log)
        line = f"{stage},{ended},{time.monotonic() - began:.0f}"
        with ends.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)
        if ended != "0":
            print(*log.read_text(errors="replace").splitlines()[-15:], sep="\n", flush=True)


if __name__ == "__main__":
    main()
