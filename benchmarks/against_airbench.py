"""Compares speedrun with three other recipes for CIFAR-10 on one machine: accuracy, work and time of whole runs.

    git clone https://github.com/KellerJordan/cifar10-airbench
    git clone https://github.com/hiverge/cifar10-speedrun
    python benchmarks/against_airbench.py --airbench cifar10-airbench --hiverge cifar10-speedrun --data DIR \
        --out rounds.csv --seeds 1,2,3

The other recipes run as their own scripts from these folders, with changes. Lines that need CUDA or fp16 use --device
and --precision instead; torch.compile (ours has none here either) and evaluations between epochs are removed. All
sides have the same precision: fp32 weights, with autocast for bf16 and fp16 (the scripts' own is fp16-pure), and then
16-bit images. (The scripts normalise in 16 bits; ours in fp32, before the cast to 16 bits.) On a CPU all sides keep
freed memory, as torch does on CUDA and speedrun does by malloc's options.

A round runs each side once, in a new process that first trains one step; the order rotates from round to round.
Seconds are those that each script counts: whitening, training and the last evaluation with its views. Work is the FLOPs
of training by the suite's formula; the three others have the network of speedrun, at 32 x 32 pixels. --images and
--epochs make runs short, to measure only images per second. The same command continues the file --out. --records adds
whole runs of speedrun by gpubench to our side when accuracies are compared.
"""

import argparse
import csv
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from gpubench.suites import cifar10
from gpubench.suites.cifar10 import training
from gpubench.suites.cifar10.recipe import RECIPES
from scipy.stats import t, ttest_ind

from gpubench import load
from gpubench.analysis.stats import median
from gpubench.data.datasets import load_cifar
from gpubench.suite import files
from gpubench.suite.trial import TRAINED, Case, Trial
from gpubench.training import precision
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for

CIFAR10 = files.find("cifar10")
COLUMNS = ("side", "seed", "setting", "images", "pflop", "seconds", "images_per_second", "accuracy")
PRECISIONS = ("fp32", "bf16", "fp16", "fp16-pure")


@dataclass(frozen=True)
class Script:
    """Another recipe: the path of its script, and how the script is changed.

    `changes` has texts that the script must contain, and their replacements. In these, DEVICE, OPERAND and WEIGHTS are
    names of a device and two dtypes, and EPOCHS the epochs of the run.
    """

    file: str
    epochs: float
    batch: int
    changes: Mapping[str, str]
    commit: str
    own_model: bool = True
    """Whether its `main` makes the network itself."""


COMMON = {
    "torch.cuda.Event": "Event",
    "torch.cuda.synchronize()": "None",
    "self.images.half() / 255": "self.images.to(OPERAND) / 255",
}
BETWEEN_EPOCHS = {"val_acc = evaluate(model, test_loader, tta_level=0)": "val_acc = 0.0"}
SCRIPTS = {
    "airbench94": Script(
        "legacy/airbench94.py", 9.9, 1024, {
            **COMMON, **BETWEEN_EPOCHS,
            "map_location=torch.device(gpu)": "map_location=DEVICE",
            "net.half().cuda()": "under_autocast(net.to(device=DEVICE, dtype=WEIGHTS))",
            "'train_epochs': 9.9": "'train_epochs': EPOCHS",
            "'whiten_bias_epochs': 3": "'whiten_bias_epochs': 3 / 9.9 * EPOCHS",
        }, "f1c599c4",
    ),
    "airbench94_muon": Script(
        "airbench94_muon.py", 8, 2000, {
            **COMMON, **BETWEEN_EPOCHS,
            'map_location=torch.device("cuda")': "map_location=DEVICE",
            "mod.half()": "mod.to(WEIGHTS)",
            "G.bfloat16()": "G.to(OPERAND)",
            "ceil(8 * len": "ceil(EPOCHS * len",
            "ceil(3 * len": "ceil(3 / 8 * EPOCHS * len",
        }, "f1c599c4", own_model=False,
    ),
    "hiverge": Script(
        "cifar10_speedrun.py", 7.59, 1536, {
            **COMMON, **BETWEEN_EPOCHS,
            'map_location=torch.device("cuda")': "map_location=DEVICE",
            'dtype=torch.long, device="cuda"': "dtype=torch.long, device=DEVICE",
            ".pin_memory().contiguous()": "",
            "0.4465), dtype=torch.half": "0.4465), dtype=OPERAND",
            "0.2616), dtype=torch.half": "0.2616), dtype=OPERAND",
            "mod.half()": "mod.to(WEIGHTS)",
            '["momentum_buffer_dtype"] = torch.half': '["momentum_buffer_dtype"] = torch.float32',
            '["momentum_buffer_dtype"] == torch.half': '["momentum_buffer_dtype"] == torch.float32',
            "X = torch.stack(grad_list)": "X = torch.stack(grad_list).to(OPERAND)",
            "train_acc = evaluate(model, train_loader, tta_level=0)": "train_acc = 0.0",
            "ceil(7.59 * len": "ceil(EPOCHS * len",
            "ceil(0.19 * len": "ceil(0.19 / 7.59 * EPOCHS * len",
        }, "5cd49b1e", own_model=False,
    ),
}  # fmt: skip
SIDES = ("ours", *SCRIPTS)


class Event:
    """Replaces torch.cuda.Event; stores every duration that a script asks for, in seconds."""

    device = torch.device("cpu")
    durations: list[float] = []  # noqa: RUF012  (shared on purpose)

    def __init__(self, enable_timing: bool = True) -> None:
        self.at = 0.0

    def record(self) -> None:
        """Store the time at which the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.at = time.perf_counter()

    def elapsed_time(self, other: "Event") -> float:
        """Return the milliseconds to `other`."""
        Event.durations.append(other.at - self.at)
        return 1e3 * (other.at - self.at)


def patched(source: str, script: Script) -> str:
    """Return the changed source of the script; raises ValueError if it is not the script at `commit`."""
    for old, new in script.changes.items():
        if old not in source:
            raise ValueError(f"this {script.file} has no {old!r}; take the one at {script.commit}")
        source = source.replace(old, new)
    return re.sub(r"@torch\.compile.*\n", "\n", source)


def under_autocast(mode: precision.Mode, net: torch.nn.Module) -> torch.nn.Module:
    """Make the forward pass of `net` compute in the mode's precision and return float32, as ours does; return `net`."""
    forward = net.forward

    def cast(*arguments: Any, **options: Any) -> torch.Tensor:
        with mode.autocast():
            return forward(*arguments, **options).float()

    net.forward = cast  # type: ignore[method-assign]
    return net


def theirs(script: Script, folder: Path, options: argparse.Namespace) -> Callable[[int], list[float]]:
    """Train one step; return a function that runs the recipe with a seed: images, FLOPs, seconds, accuracy."""
    source = patched((folder / script.file).read_text(), script)
    train, test = load_cifar("cifar10", options.data)
    few = options.images or 50_000
    Path("cifar10").mkdir()  # it reads its data from here
    for file, part, many in (("train", train, few), ("test", test, options.test_images)):
        images = torch.from_numpy(part.images[:many]).permute(0, 2, 3, 1).contiguous()
        content = {"images": images, "labels": torch.from_numpy(part.labels[:many]), "classes": list("0123456789")}
        torch.save(content, f"cifar10/{file}.pt")
    mode, kind = precision.mode_of(options.precision, options.device), precision.KINDS[options.precision]
    epochs, device = options.epochs or script.epochs, torch.device(options.device)
    names: dict[str, Any] = {
        "__name__": script.file, "Event": Event, "under_autocast": lambda net: under_autocast(mode, net),
        "DEVICE": device, "OPERAND": kind.operand, "WEIGHTS": kind.weights, "EPOCHS": 1e-9,
    }  # fmt: skip
    sys.argv = [str(folder / script.file)]  # which it reads
    exec(compile(source, script.file, "exec"), names)
    names["print_columns"] = lambda *arguments, **more: None
    model = []
    if not script.own_model:
        net = names["CifarNet"]().to(device).to(memory_format=torch.channels_last)
        model = [under_autocast(mode, net)]

    def run(seed: int) -> list[float]:
        torch.manual_seed(seed)
        Event.durations.clear()
        found = names["main"](seed, *model)
        accuracy = found[1] if isinstance(found, tuple) else found
        steps = -(-round(names["EPOCHS"] * (few // script.batch) * 1e6) // 10**6)
        images = steps * script.batch
        return [images, images * cifar10.narrow_flops(32, False), sum(Event.durations), accuracy]

    run(0)  # a step, to warm up
    names["EPOCHS"] = epochs
    if script.file.startswith("legacy"):
        names["hyp"]["opt"].update(train_epochs=epochs, whiten_bias_epochs=3 / 9.9 * epochs)
    return run


def ours(options: argparse.Namespace) -> Callable[[int], list[float]]:
    """Return the same function for speedrun, which has its own warm-up."""
    settings = {
        "epochs": str(options.epochs), "train_images": str(options.images),
        "valid_images": str(options.test_images),
    }  # fmt: skip
    params = CIFAR10.resolve_params(settings)
    case = Case(
        suite="cifar10", suite_version=CIFAR10.suite.version, suite_digest="", suite_path=str(CIFAR10.path),
        model="speedrun", precision=options.precision, device=options.device, params=params, batch_policy="fixed",
        batch_size=RECIPES["speedrun"].batch, mode="full", data="cifar10",
    )  # fmt: skip

    def run(seed: int) -> list[float]:
        wait = torch.cuda.synchronize if options.device.startswith("cuda") else (lambda: None)
        clock = Clock(sampling_for("full", accelerator=options.device != "cpu"), synchronize=wait)
        clock.resident = tuple  # type: ignore[method-assign,assignment]  (no steps after the run)
        quality = CIFAR10.suite.train(Trial(case, 0, seed, data_dir=str(options.data)), clock)
        found = clock.summary()
        images = found["samples"]
        return [images, images * cifar10.flops("speedrun", params), found["seconds"], quality["accuracy"]]

    return run


def setting_of(options: argparse.Namespace) -> str:
    """Return the settings that runs must share to be compared, as text."""
    part = f"{options.images}+{options.test_images} images {options.epochs} epochs {options.precision}"
    threads = f"{options.threads or torch.get_num_threads()} threads"
    return f"{part} {options.device} {threads} torch {torch.__version__} version {CIFAR10.suite.version}"


def report(path: Path, setting: str, recorded: Mapping[int, float]) -> None:
    """Print the means of each side, and ours minus each other side, with and without the `recorded` runs of ours.

    Accuracies are not paired, because a seed means nothing across recipes. Seconds are paired by round.
    """
    lines = [line for line in csv.DictReader(path.open()) if line["setting"] == setting]
    of = {side: {line["seed"]: line for line in lines if line["side"] == side} for side in SIDES}
    for side, runs in of.items():
        if runs:
            columns = {name: [float(run[name]) for run in runs.values()] for name in COLUMNS[3:]}
            print(
                f"{side}: {accuracy_text(columns['accuracy'])},"
                f" {median(columns['images']):,.0f} images, {median(columns['pflop']):.4f} PFLOP,"
                f" {median(columns['seconds']):.1f} s, {median(columns['images_per_second']):.0f} images/s"
            )
    accuracies = {side: [float(run["accuracy"]) for run in runs.values()] for side, runs in of.items()}
    more = [accuracy for seed, accuracy in recorded.items() if str(seed) not in of["ours"]]
    if more:
        print(f"ours and recorded: {accuracy_text(accuracies['ours'] + more)}")
    for side in SCRIPTS:
        shared = of["ours"].keys() & of[side].keys()
        if shared:
            ratios = [float(of[side][seed]["seconds"]) / float(of["ours"][seed]["seconds"]) for seed in shared]
            print(f"{side}: {median(ratios):.3f} times the seconds of ours ({min(ratios):.3f} to {max(ratios):.3f})")
            print(f"  ours less {side}: {difference_text(accuracies['ours'], accuracies[side])}")
            if more:
                print(f"  with those recorded: {difference_text(accuracies['ours'] + more, accuracies[side])}")


def accuracies_in(paths: Sequence[Path], options: argparse.Namespace) -> dict[int, float]:
    """Return the accuracies of speedrun in result files, by seed: full runs on real images with today's FLOPs."""
    if not paths:
        return {}
    alike = {"suite": "cifar10", "model": "speedrun", "mode": "full", "data": "cifar10"}
    alike |= {"precision": options.precision, "device": options.device}
    rows = load(paths).frame
    rows = rows[(rows[list(alike)] == list(alike.values())).all(axis=1) & rows["status"].isin(TRAINED)]
    work = cifar10.flops("speedrun", CIFAR10.resolve_params({}))
    rows = rows[(rows["flops_per_sample"] / work - 1).abs() < 0.001]
    return dict(zip(rows["seed"].astype(int), rows["accuracy"], strict=True))


def difference_text(ours: Sequence[float], others: Sequence[float]) -> str:
    """Return the difference of two means with Welch's 95% interval, in percentage points, as text."""
    if min(len(ours), len(others)) < 2 or not stdev(ours) + stdev(others):
        return "no interval"
    low, high = ttest_ind(ours, others, equal_var=False).confidence_interval()
    return f"{100 * (fmean(ours) - fmean(others)):+.2f} points ({100 * low:+.2f} to {100 * high:+.2f})"


def accuracy_text(values: Sequence[float]) -> str:
    """Return the number of runs, their mean, and its 95% interval by Student's t, in per cent, as text."""
    mean = f"{len(values)} runs, {100 * fmean(values):.2f}%"
    if len(values) < 2 or not stdev(values):
        return f"{mean} (no interval)"
    low, high = t.interval(0.95, len(values) - 1, fmean(values), stdev(values) / math.sqrt(len(values)))
    return f"{mean} ({100 * low:.2f} to {100 * high:.2f})"


def main() -> None:
    """Run the rounds that the file lacks, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--airbench", type=Path, default=Path("cifar10-airbench"))
    parser.add_argument("--hiverge", type=Path, default=Path("cifar10-speedrun"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--epochs", type=int, default=0, help="0 is each recipe's own")
    parser.add_argument("--images", type=int, default=0, help="train on only the first N images")
    parser.add_argument("--test-images", type=int, default=10_000)
    parser.add_argument("--precision", default="bf16", choices=PRECISIONS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no run after this time")
    parser.add_argument("--records", type=Path, nargs="*", default=[], help="result files with more runs of speedrun")
    parser.add_argument("--only", choices=SIDES, help="one side, in this process")
    options = parser.parse_args()
    options.data, out = options.data.resolve(), options.out.resolve()
    if options.only:
        return one(options, out)
    if options.records and (options.images or options.epochs or options.test_images != 10_000):
        parser.error("--records: its runs are whole ones, without --images, --epochs and --test-images")
    recorded = accuracies_in(options.records, options)
    if not out.exists():
        out.write_text(",".join(COLUMNS) + "\n")
    done = {tuple(line[:3]) for line in csv.reader(out.open())}
    sides, began = options.sides.split(","), time.monotonic()
    for number, seed in enumerate(options.seeds.split(",")):
        for name in (sides[number % len(sides) :] + sides)[: len(sides)]:
            if (name, seed, setting_of(options)) not in done and time.monotonic() - began < options.seconds:
                subprocess.run([sys.executable, *sys.argv, "--only", name, "--seeds", seed], check=True)
    report(out, setting_of(options), recorded)


def one(options: argparse.Namespace, out: Path) -> None:
    """Run one side in this process; append a line for each run to the file."""
    Event.device = torch.device(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    precision.set_flags(options.precision, reduced_reduction=False, cudnn_benchmark=True)
    if options.device == "cpu":
        training.keep_memory()
    folder = options.hiverge if options.only == "hiverge" else options.airbench
    folder = folder.resolve()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        run = ours(options) if options.only == "ours" else theirs(SCRIPTS[options.only], folder, options)
        for seed in map(int, options.seeds.split(",")):
            images, flops, seconds, accuracy = run(seed)
            figures = (int(images), flops / 1e15, seconds, images / seconds, accuracy)
            line = (options.only, str(seed), setting_of(options), *(f"{value:.6g}" for value in figures))
            print(*line, sep=",", flush=True)
            with out.open("a") as file:
                print(*line, sep=",", file=file)


if __name__ == "__main__":
    main()
