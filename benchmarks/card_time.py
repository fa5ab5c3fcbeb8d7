"""Simulates how long `gpubench run` takes on a card: until the first row, the first ratio, and the end.

    python benchmarks/card_time.py

The real run, batch search and Clock get simulated children, whose seconds follow from a card's rate, memory and
start-up. No process is started, and nothing waits. The time of a trial beside its steps (imports, CUDA, cuDNN's search
for algorithms) was measured on an H100 with torch 2.11 on 2026-11-26 if a comment below says so, else assumed. So each
case is printed for a low and a high cost.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr
from dataclasses import asdict, dataclass, replace
from io import StringIO
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from gpubench.hardware import environment
from gpubench.rows.row import Row
from gpubench.rows.write import RowsFile
from gpubench.runner import measured_peaks
from gpubench.runner.cases import cases_of, recipes_of
from gpubench.runner.options import Options
from gpubench.runner.process import Outcome
from gpubench.runner.run import lead
from gpubench.runner.session import Session
from gpubench.runner.signals import Interrupts
from gpubench.suite import files
from gpubench.suite.trial import Measurement, Trial, trial_from_json
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for

GIB = 2**30
EPOCHS, TRAIN_IMAGES, VALID_IMAGES = 30, 50_000, 10_000


@dataclass(frozen=True)
class Network:
    """What a ResNet needs in a training at 224 pixels."""

    train_flops: float
    """Per image, forward and backward."""
    sample_bytes: float
    """Activations of an image in fp32; in fp16 0.55 times as much."""
    weights: float
    least_step_seconds: float
    """Time of a step of the smallest batch: launches and Python."""
    convolutions: int


NETWORKS = {
    "resnet18": Network(10.9e9, 25e6, 11.7e6, 0.010, 20),
    "resnet34": Network(22.0e9, 38e6, 21.8e6, 0.018, 36),
    "resnet50": Network(24.6e9, 88e6, 25.6e6, 0.025, 53),  # measured: 87e6 bytes
    "resnet101": Network(47.0e9, 135e6, 44.5e6, 0.048, 104),
    "resnet152": Network(69.0e9, 190e6, 60.2e6, 0.070, 155),
}


@dataclass(frozen=True)
class Card:
    """A card and its host."""

    name: str
    memory_bytes: float
    flops: Mapping[str, float]
    """FLOP/s that a training reaches, by precision."""
    settled_seconds: float
    """Time from a trial's first lap until clock and temperature have settled, on a card that was warm before. Five
    seconds are the shortest: the window of the readings. Longer times are assumed."""


CARDS = (
    # Rates of the H100: 2,890 images/s of ResNet-18 and 1,006 of ResNet-50 in fp32, 5,206 of ResNet-50 in fp16.
    Card("H200", 139.8 * GIB, {"fp32": 28e12, "fp16": 126e12}, 5.0),
    Card("GTX 1080 Ti", 10.9 * GIB, {"fp32": 5.6e12, "fp16": 5.9e12}, 14.0),
)


@dataclass(frozen=True)
class Cost:
    """The time that a trial takes before its steps."""

    start_seconds: float
    """From the start of a new process to its first step: interpreter, torch, fastai, CUDA, data, proof. It was 12 s on
    an H100 with other trials at the same time, and 28 s for the first trial on a machine."""
    cudnn_steps: int
    """In the first fp32 step cuDNN tries its algorithms, which takes as long as this many further steps."""


LOW, HIGH = Cost(8.0, 34), Cost(12.0, 56)
"""cuDNN's search took 5.2 s in ResNet-18 (batch 256) and 47 s in ResNet-50 (batch 728) on an H100; the steps here are
without CUDNN_SECONDS."""
HALF_CUDNN_STEPS = 5
"""The same number in fp16: ResNet-50 took 7.4 s at batch 1,272."""
FORK_SHARE = 0.1
"""Share of the start-up that a fork still has: CUDA's context, data, proof. It was 0.9 s for `reference` on an H100."""
CUDNN_SECONDS = 0.11
"""Seconds of the search for each convolution with any batch. It was 6 s for ResNet-50 in fp16 on an H100, with a
`benchmark_limit` of 1 to 5."""
CONTEXT_BYTES = 0.5 * GIB
FRAGMENTS = 0.015
"""Share of the used memory that the allocator holds in fragments and cannot use."""
PEAK_SECONDS = 9.0
"""Time to measure the peaks of one precision (products of all sizes, copies, calls), after the start."""


class Time:
    """A simulated clock, in seconds: `spend` moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


class Children:
    """Replaces the start of children: each spends the simulated time that it would take on `card`, and answers."""

    def __init__(self, card: Card, time: Time, cost: Cost, *, forked: bool) -> None:
        self.card, self.time, self.cost, self.forked = card, time, cost, forked
        self.probes = self.trials = self.templates = 0

    def __call__(self, task: Mapping[str, Any], **_: Any) -> Outcome:
        began = self.time.now
        self.time.spend(self.cost.start_seconds * (FORK_SHARE if self.forked else 1))
        answer: dict[str, Any] = {}
        if task["task"] == "soak":
            self.time.spend(task["seconds"])
        elif task["task"] == "peak":
            self.time.spend(task["soak_seconds"] + PEAK_SECONDS)
            answer["rates"] = {"flops_per_second": 1e13, "bytes_per_second": 1e12, "op_seconds": 1e-5, "side": 8192}
        else:
            trial = trial_from_json(task["trial"])
            if self.forked and trial.case.mode != "probe" and trial.index >= self.templates:  # one for each round
                self.templates += 1
                self.time.spend((1 - FORK_SHARE) * self.cost.start_seconds)
            self.probes += trial.case.mode == "probe"
            self.trials += trial.case.mode != "probe"
            answer = {"measurement": asdict(self.train(trial)), "train_call_seconds": self.time.now - began}
        return Outcome("answered", self.time.now - began, answer)

    def train(self, trial: Trial) -> Measurement:
        """Return the measurement of a training with the step times of this card."""
        case, network = trial.case, NETWORKS[trial.case.model]
        batch = trial.batch_size
        half = case.precision != "fp32"
        at_rest = 16 * network.weights + 0.2 * GIB
        used = at_rest + batch * network.sample_bytes * (0.55 if half else 1.0)
        limit = min(case.memory_limit_bytes or self.card.memory_bytes, self.card.memory_bytes) - CONTEXT_BYTES
        step = max(network.least_step_seconds, batch * network.train_flops / self.card.flops[case.precision])
        if used * (1 + FRAGMENTS) > limit:
            self.time.spend(2.0)
            return Measurement(status="out_of_memory", reason="CUDA out of memory")
        begun: list[float] = []
        clock = Clock(
            sampling_for(case.mode, accelerator=True),
            now=self.time,
            settled=lambda: self.time.now - begun[0] > self.card.settled_seconds,
        )

        def steps(phase: str, images: int, seconds: float) -> None:
            for _ in clock.steps(Batches(images, batch), phase, samples=images):
                begun.append(self.time.now)
                if len(begun) == 1:  # validation's convolutions are those of the training's forward pass
                    searched = HALF_CUDNN_STEPS if half else self.cost.cudnn_steps
                    self.time.spend(CUDNN_SECONDS * network.convolutions + searched * seconds)
                self.time.spend(seconds)

        for _ in clock.epochs(EPOCHS):
            steps("train", TRAIN_IMAGES, step)
            steps("valid", VALID_IMAGES, step / 3)
        for _ in clock.resident():
            self.time.spend(step)
        more = {"resting_memory_bytes": int(at_rest)} if "resting_memory_bytes" in Measurement.__annotations__ else {}
        return Measurement(status="ok", peak_memory_bytes=int(used), **more, **clock.summary())


class Batches:
    """A loader that takes no time: its batches have only a shape."""

    def __init__(self, images: int, batch: int) -> None:
        self.images, self.batch = images, batch

    def __len__(self) -> int:
        return -(-self.images // self.batch)

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, self.images, self.batch):
            yield SimpleNamespace(shape=(min(self.batch, self.images - first),))


@dataclass(frozen=True)
class Timed:
    """Seconds from the start of a run to its first row, its first ratio and its end; numbers of rows and children."""

    first_row: float
    first_ratio: float
    everything: float
    rows: int
    probes: int
    trials: int


def simulate(card: Card, cost: Cost, *, forked: bool = True, **wishes: Any) -> Timed:
    """Simulate `gpubench run --suite resnet --precision both` on `card`; `wishes` are further options."""
    loaded = files.find_all(["resnet"])
    device = environment.Device("cuda:0", "cuda", card.name, int(card.memory_bytes), "9.0", "1", "aa", {})
    facts = environment.cpu_facts() | {"torch": "2.15.0"}
    time, written = Time(), list[float]()
    children = Children(card, time, cost, forked=forked)
    append = RowsFile.append

    def noted(file: RowsFile, rows: Sequence[Row]) -> None:
        written.extend(time.now for _ in rows)
        append(file, rows)

    with tempfile.TemporaryDirectory() as folder, ExitStack() as patched:
        fakes: list[tuple[object, str, Callable[..., Any]]] = [
            (measured_peaks, "stored", lambda *_: None),
            (measured_peaks, "_store", lambda *_: None),
            (RowsFile, "append", noted),
        ]
        for where, name, fake in fakes:
            patched.enter_context(patch.object(where, name, fake))
        options = Options(out=Path(folder) / "rows.csv", **wishes)
        recipes = [replace(recipe, data="cifar100") for recipe in recipes_of(options, loaded)]
        session = Session(
            options=options,
            suites={each.name: each for each in loaded},
            devices={"cuda:0": device},
            cards={"cuda:0": None},
            environment=environment.environment_of(facts),
            path=options.out,
            cases=tuple(cases_of(recipes, options, [device], 16)),
        )
        lead(session, lambda line: None, children, Interrupts())
    return Timed(*written[:2], time.now, len(written), children.probes, children.trials)


def main() -> None:
    """Print a line for each card, mode, cost and way to start a trial."""
    for card, mode in product(CARDS, ("sampled", "quick")):
        for cost, forked in product((LOW, HIGH), (False, True)):
            with redirect_stderr(StringIO()):
                timed = simulate(card, cost, forked=forked, mode=mode)
            print(
                f"{card.name:12} {mode:8} start {cost.start_seconds:4.0f} s, {cost.cudnn_steps} steps of cuDNN,"
                f" {'forked' if forked else 'fresh':7} first row {timed.first_row / 60:5.1f} min,"
                f" first ratio {timed.first_ratio / 60:5.1f} min, everything {timed.everything / 60:6.1f} min,"
                f" {timed.rows} rows, {timed.probes} probes, {timed.trials} trials"
            )


if __name__ == "__main__":
    main()
