"""Tests this project on a card in stages, 27 minutes in all: its tests, selftest, every suite.

    python benchmarks/on_a_card.py --out walk --side-by-side 10 --seconds 300    # first: only whether anything fails
    python benchmarks/on_a_card.py --data DIR --out card                   # all stages
    python benchmarks/on_a_card.py --data DIR --out card --seconds 540     # nine minutes of them; repeat to continue
    python benchmarks/on_a_card.py --data DIR --out card --stages selftest,resnet --stretch 3    # a slow card

A stage is a command that a user would type, with a time limit; the most important stages come first. Output goes to
OUT/STAGE.log, rows to OUT/rows/STAGE.csv, and the exit code to a line of OUT/stages.csv. A stage that is cut off keeps
its rows. The same command continues after the last stage, and names the stages that it has no time for. `--stages` also
runs stages again that have ended. Without `--data` the images and texts are generated, and no training has a goal. With
`--side-by-side N` the runs are quick ones, N at a time, so their times mean nothing. `--device cpu --small` tests this
script without a card.
"""

import argparse
import csv
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

GRACE_SECONDS = 30
"""Time for a stage to write its rows after Ctrl-C."""
CUT = "cut off"


@dataclass(frozen=True)
class Stage:
    """A command and its time limit on a fast card."""

    command: str
    seconds: float
    resumes: bool = False
    """Whether the same command continues from its rows; otherwise the stage starts only if all its time is left."""


def _run(seconds: float, asked: str) -> Stage:
    return Stage(f"gpubench run --suite {asked}", seconds, resumes=True)


FP32 = "resnet --models resnet18 --precision fp32 --batch 512 --repeats 2"
STAGES: Mapping[str, Stage] = {
    "doctor": Stage("gpubench doctor", 30),
    "tests": Stage("pytest -q -n 0 -m gpu", 130),
    "resnet": _run(170, "resnet --models resnet18 --precision both --repeats 2"),
    "selftest": Stage("gpubench selftest --device DEVICE", 460),
    "peak": Stage("gpubench peak --device DEVICE --precision both", 80),
    # The two memory layouts in fp32: which one is faster depends on the card.
    "contiguous": _run(45, f"{FP32} --set memory_format=contiguous"),
    "channels-last": _run(45, f"{FP32} --set memory_format=channels_last"),
    "wordlm": _run(70, "wordlm --models lstm --precision all --repeats 1"),
    "speedrun": _run(
        120, "cifar10 --models speedrun --precision mixed --full --set compile=true --set runs_per_process=5"
    ),
    "gpt": _run(35, "gpt --models gpt2-124m --precision both --repeats 1"),
    "finetune": _run(25, "finetune --models smollm-135m --precision mixed --repeats 1"),
    "precisions": _run(70, "resnet --models resnet50 --precision all --batch 128 --repeats 1"),
    "imagenet": _run(50, "imagenet --models resnet50 --precision both --batch 128 --repeats 1 --synthetic"),
    "scaling": _run(40, "scaling --models resnet50 --precision mixed --batch 128 --repeats 1"),
    "largebatch": _run(40, "largebatch --precision both --full"),
    "tricks": _run(50, "tricks --repeats 1"),
    "reference": _run(30, "reference --precision mixed --batch 64 --repeats 1"),
    # A full run of half a minute, and samples that project it.
    "full": _run(50, "resnet --models resnet18 --precision mixed --batch 512 --set epochs=3 --full"),
    "sampled": _run(40, "resnet --models resnet18 --precision mixed --batch 512 --set epochs=3 --repeats 2"),
    "ladder": _run(30, "cifar10 --precision fp16-pure --quick --repeats 1"),
    "compare": Stage("gpubench compare OUT/rows --all --charts OUT/charts", 10),
}

SMALL = {
    "resnet": "--quick --models resnet18 --batch 8 --set image_size=32 --set train_images=64 --set valid_images=16",
    "wordlm": "--quick --set train_tokens=4000 --set valid_tokens=400",
    "gpt": "--quick --batch 1 --set layers=1 --set width=24 --set context=16 --set tokens=256 --set valid_tokens=32",
    "finetune": "--quick --models llama-6m --batch 1 --set context=16 --set tokens=256 --set valid_tokens=32",
    "cifar10": "--quick --batch 16 --set train_images=64 --set valid_images=16 --set compile=false"
    " --set runs_per_process=1",
    "imagenet": "--quick --models resnet18 --set phases=tiny --batch 8 --set train_images=64 --set valid_images=16",
    "scaling": "--quick --batch 4 --set image_size=64",
    "largebatch": "--quick --batch 16 --set global_batch=32 --set train_images=64 --set valid_images=16",
    "reference": "--quick --batch 4 --set image_size=32 --set layers=1",
    "tricks": "--quick --batch 16 --set train_images=64 --set valid_images=16 --set test_images=16 --set width=4",
}
"""Options that --small adds: the smallest sizes that still run every line."""


def command_of(name: str, options: argparse.Namespace) -> list[str]:
    """Return the command of a stage for this device and this data."""
    words = STAGES[name].command.split()
    if words[:2] == ["gpubench", "run"]:
        words += ["--device", "DEVICE", "--out", f"OUT/rows/{name}.csv"]
        if "--synthetic" not in words:
            words += ["--data", str(options.data)] if options.data else ["--synthetic"]
        if options.side_by_side > 1:
            words = [word for word in words if word not in {"--full", "--quick"}] + ["--quick", "--no-rank"]
        if options.small:
            words = [word for word in words if word != "--full"] + SMALL[words[words.index("--suite") + 1]].split()
    return [sys.executable, "-m", *(_filled(word, options) for word in words)]


def _filled(word: str, options: argparse.Namespace) -> str:
    head, slash, rest = word.partition("/")
    return {"DEVICE": options.device, "OUT": str(options.out)}.get(head, head) + slash + rest


def outcome(command: list[str], seconds: float, log: Path) -> str:
    """Run a command; return its exit code, or CUT if it was stopped after `seconds`."""
    with log.open("a") as file:
        print("$", *command, file=file, flush=True)
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            code = process.wait(seconds)
            return CUT if code in {130, -signal.SIGINT} else str(code)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # like Ctrl-C: finished rows stay, and no process is left
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            return CUT


def left_of(name: str, ends: Iterable[Mapping[str, str]], stretch: float) -> float:
    """Return the seconds that a stage has left: 0 if it has ended, the rest if it was cut off before its limit."""
    left = STAGES[name].seconds * stretch
    for line in ends:
        if line["stage"] == name:
            left = left - float(line["seconds"]) if line["ended"] == CUT and STAGES[name].resumes else 0.0
    return max(0.0, left)


def run_stage(name: str, options: argparse.Namespace, until: float) -> None:
    """Run or continue a stage for its time that is left, and add a line to stages.csv."""
    path = options.out / "stages.csv"
    with path.open() as file:
        ends = [] if options.stages else list(csv.DictReader(file))
    wanted, there = left_of(name, ends, options.stretch), until - time.monotonic()
    if wanted < 1:
        return
    least = 10 if STAGES[name].resumes or options.side_by_side > 1 else wanted
    if there < least:
        print(f"{name}: left for a call of {least + GRACE_SECONDS:.0f} s or more", flush=True)
        return
    began, log = time.monotonic(), options.out / f"{name}.log"
    ended = outcome(command_of(name, options), min(wanted, there), log)
    line = f"{name},{ended},{time.monotonic() - began:.0f}"
    with path.open("a") as file:
        file.write(line + "\n")
    print(line, flush=True)
    if ended != "0":
        print(*log.read_text(errors="replace").splitlines()[-15:], sep="\n", flush=True)


def main() -> None:
    """Run the stages that stages.csv lacks; print the line of each, and the end of its log if it failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--stages", default="", help="these, joined by commas, whether or not they ended already")
    parser.add_argument("--stretch", type=float, default=1.0, help="stages may take so many times as long")
    parser.add_argument("--seconds", type=float, default=1e9, help="longest that all of this call may take")
    parser.add_argument("--side-by-side", type=int, default=1, metavar="N", help="quick runs, N at a time")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores Ctrl-C, and so would each stage
    until = time.monotonic() + options.seconds - GRACE_SECONDS
    options.out.joinpath("rows").mkdir(parents=True, exist_ok=True)
    path = options.out / "stages.csv"
    if not path.exists():
        path.write_text("stage,ended,seconds\n")
    names = options.stages.split(",") if options.stages else STAGES
    if options.side_by_side == 1:  # not in a thread, which Ctrl-C would not end
        for name in names:
            run_stage(name, options, until)
        return
    pool = ThreadPoolExecutor(options.side_by_side)
    try:
        list(pool.map(partial(run_stage, options=options, until=until), names))
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C no other stage begins


if __name__ == "__main__":
    main()
