"""speedrun against KellerJordan's airbench94 on one machine: images per second, and accuracy after few epochs.

    git clone https://github.com/KellerJordan/cifar10-airbench
    python benchmarks/against_airbench.py --airbench cifar10-airbench/legacy/airbench94.py --data DIR --out pairs.csv \
        --epochs 3 --seeds 1,2,3

The other side is its own script, read from that file, with the lines that need CUDA or fp16 put in terms of --device
and --precision, its epochs set, and its clock replaced by one that works anywhere; its schedules scale by themselves,
and its whitening bias is trained for the same share of the epochs. Both have the same precision: fp32 weights, under
autocast in bf16 and fp16 (its own is fp16-pure), and images of 16 bits there. Both keep their memory on a CPU, as torch
does on CUDA and as speedrun asks malloc to. Runs alternate, each in a process of its own that first trains one step,
and are resumed from --out. train_seconds has what is done to the images before and in the epochs (of ours also the
whitening), all_seconds whitening and evaluation of both.

--share S trains both on the first S of the images at S times the batch, with as many steps as before: airbench94's
learning rate and weight decay, which it states per image, are raised by 1/S so that a step is as long.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from gpubench.suites.cifar10 import recipe, training

from gpubench.analysis.stats import median, median_interval
from gpubench.data.datasets import load_cifar
from gpubench.suite import files
from gpubench.suite.trial import Case, Trial
from gpubench.training import precision
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for

CIFAR10 = files.find("cifar10")
COLUMNS = ("side", "seed", "epochs", "images", "batch", "train_seconds", "images_per_second", "all_seconds", "accuracy")
PRECISIONS = ("fp32", "bf16", "fp16", "fp16-pure")


class Event:
    """Stands in for torch.cuda.Event; keeps every duration that was asked for, in seconds."""

    device = torch.device("cpu")
    durations: list[float] = []  # noqa: RUF012  (shared on purpose)

    def __init__(self, enable_timing: bool = True) -> None:
        self.at = 0.0

    def record(self) -> None:
        """Now, once the device has done all it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.at = time.perf_counter()

    def elapsed_time(self, other: "Event") -> float:
        """Milliseconds to `other`."""
        Event.durations.append(other.at - self.at)
        return 1e3 * (other.at - self.at)


def patched(source: str, name: str, device: str) -> str:
    """airbench94's source for this device and precision; raises ValueError where it is not the script we know."""
    kind = precision.KINDS[name]
    changes = {
        "map_location=torch.device(gpu)": f"map_location=torch.device({device!r})",
        "(self.images.half() / 255)": f"(self.images.to({kind.operand}) / 255)",
        "net.half().cuda()": f"under_autocast(net.to(device={device!r}, dtype={kind.weights}))",
        "torch.cuda.Event": "Event",
        "torch.cuda.synchronize()": "None",
    }
    for old, new in changes.items():
        if old not in source:
            raise ValueError(f"this airbench94.py has no {old!r}; take legacy/airbench94.py at f1c599c4")
        source = source.replace(old, new)
    return source


def under_autocast(mode: precision.Mode, net: torch.nn.Module) -> torch.nn.Module:
    """`net` with its forward pass in the mode's precision, and a float32 answer, as ours is judged."""
    forward = net.forward

    def cast(x: torch.Tensor) -> torch.Tensor:
        with mode.autocast():
            return forward(x).float()

    net.forward = cast  # type: ignore[method-assign]
    return net


def images_of(options: argparse.Namespace) -> int:
    """How many images both train on."""
    return options.images or int(50_000 * options.share)


class Theirs:
    """airbench94, ready to run again and again."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        train, test = load_cifar("cifar10", options.data)
        (folder / "cifar10").mkdir()
        few = images_of(options)
        for file, part, many in (("train", train, few), ("test", test, options.test_images)):
            images = torch.from_numpy(part.images[:many]).permute(0, 2, 3, 1).contiguous()
            content = {"images": images, "labels": torch.from_numpy(part.labels[:many]), "classes": list("0123456789")}
            torch.save(content, folder / "cifar10" / f"{file}.pt")
        os.chdir(folder)  # it reads its data from there
        source = patched(options.airbench.read_text(), options.precision, options.device)
        mode = precision.mode_of(options.precision, options.device)
        self.names: dict[str, Any] = {
            "__name__": "airbench94", "Event": Event, "under_autocast": partial(under_autocast, mode),
        }  # fmt: skip
        exec(compile(source, str(options.airbench), "exec"), self.names)
        self.names["print_columns"] = lambda *arguments, **more: None
        opt = self.names["hyp"]["opt"]
        opt["batch_size"] = round(opt["batch_size"] * options.share)
        opt["whiten_bias_epochs"] = max(1, round(opt["whiten_bias_epochs"] / opt["train_epochs"] * options.epochs))
        opt["train_epochs"] = options.epochs
        opt["lr"], opt["weight_decay"] = opt["lr"] / options.share, opt["weight_decay"] / options.share
        self.batch, self.images = opt["batch_size"], few // opt["batch_size"] * opt["batch_size"]

    def warm_up(self) -> None:
        """One step."""
        opt = self.names["hyp"]["opt"]
        opt["train_epochs"] = 1e-9
        self.names["main"](0)
        opt["train_epochs"] = self.options.epochs

    def run(self, seed: int) -> list[object]:
        """One line of the file."""
        torch.manual_seed(seed)
        Event.durations.clear()
        accuracy = self.names["main"](seed)
        _, *epochs, _ = Event.durations  # whitening first, evaluation last
        seconds, images = sum(epochs), self.images * self.options.epochs
        rate = images / seconds
        return [self.options.epochs, images, self.batch, seconds, rate, sum(Event.durations), accuracy]


class Ours:
    """speedrun, ready to run again and again."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.batch = round(recipe.RECIPES["speedrun"].batch * options.share)
        settings = {
            "epochs": str(options.epochs), "train_images": str(images_of(options)),
            "valid_images": str(options.test_images),
        }  # fmt: skip
        self.settings = settings
        self.case = Case(
            suite="cifar10", suite_version=CIFAR10.suite.version, suite_digest="", suite_path=str(CIFAR10.path),
            model="speedrun", precision=options.precision, device=options.device,
            params=CIFAR10.resolve_params(settings), batch_policy="fixed", batch_size=self.batch, mode="full",
            data="cifar10",
        )  # fmt: skip

    def warm_up(self) -> None:
        """One step."""
        params = CIFAR10.resolve_params({**self.settings, "epochs": "1", "train_images": str(self.batch)})
        self.train(replace(self.case, params=params), 0)

    def run(self, seed: int) -> list[object]:
        """One line of the file."""
        accuracy, found = self.train(self.case, seed)
        seconds = found.seconds - found.valid_seconds
        rate = found.samples / seconds
        return [self.options.epochs, found.samples, self.batch, seconds, rate, found.seconds, accuracy]

    def train(self, case: Case, seed: int) -> tuple[float, SimpleNamespace]:
        """Accuracy, and what the clock found."""
        wait = torch.cuda.synchronize if self.options.device.startswith("cuda") else (lambda: None)
        clock = Clock(sampling_for("full", accelerator=self.options.device != "cpu"), synchronize=wait)
        clock.resident = tuple  # type: ignore[method-assign,assignment]  (no steps after the run)
        quality = CIFAR10.suite.train(Trial(case, 0, seed, data_dir=str(self.options.data)), clock)
        return quality["accuracy"], SimpleNamespace(**clock.summary())


def report(path: Path) -> None:
    """Pairs by seed: ratio of the rates, difference of the accuracies."""
    lines = list(csv.DictReader(path.open()))
    sides = {side: {line["seed"]: line for line in lines if line["side"] == side} for side in ("ours", "theirs")}
    both = [seed for seed in sides["ours"] if seed in sides["theirs"]]
    if not both:
        return
    pairs = [(sides["ours"][seed], sides["theirs"][seed]) for seed in both]
    ratios = [float(a["images_per_second"]) / float(b["images_per_second"]) for a, b in pairs]
    print(f"images/s, ours / theirs: median {median(ratios):.3f}, 95% {median_interval(ratios)}, pairs: {len(ratios)}")
    whole = [median([float(line["all_seconds"]) for line in side]) for side in zip(*pairs, strict=True)]
    print(f"all seconds: ours {whole[0]:.1f}, theirs {whole[1]:.1f}, medians")
    means = [sum(float(line["accuracy"]) for line in side) / len(side) for side in zip(*pairs, strict=True)]
    print(f"mean accuracy: ours {means[0]:.2%}, theirs {means[1]:.2%}, difference {100 * (means[0] - means[1]):+.2f}")


def main() -> None:
    """Go on where the file ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--airbench", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--images", type=int, default=0, help="train on so many, at the whole batch")
    parser.add_argument("--test-images", type=int, default=10_000)
    parser.add_argument("--precision", default="bf16", choices=PRECISIONS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=("ours", "theirs"), help="one side, in this process")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further run after so many")
    options = parser.parse_args()
    options.airbench, options.data, out = options.airbench.resolve(), options.data.resolve(), options.out.resolve()
    Event.device = torch.device(options.device)
    if out.exists():
        done = {tuple(line[:2]) for line in csv.reader(out.open())}
    else:
        done = set()
        out.write_text(",".join(COLUMNS) + "\n")
    if options.threads:
        torch.set_num_threads(options.threads)
    precision.set_flags(options.precision, reduced_reduction=False, cudnn_benchmark=True)
    if options.only:
        if options.device == "cpu":
            training.keep_memory()
        with tempfile.TemporaryDirectory() as folder:
            side = Theirs(options, Path(folder)) if options.only == "theirs" else Ours(options)
            side.warm_up()
            for seed in map(int, options.seeds.split(",")):
                line = [options.only, seed, *side.run(seed)]
                text = ",".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in line)
                print(text, flush=True)
                with out.open("a") as file:
                    file.write(text + "\n")
            os.chdir("/")
        return
    began = time.monotonic()
    for number, seed in enumerate(options.seeds.split(",")):
        for name in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
            if (name, seed) not in done and time.monotonic() - began < options.seconds:
                subprocess.run([sys.executable, *sys.argv, "--only", name, "--seeds", seed], check=True)
    report(out)


if __name__ == "__main__":
    main()
