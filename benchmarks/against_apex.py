"""Does `wordlm` train like NVIDIA Apex in each precision? Equal weights and batches, 40 steps, all losses.

    git clone -b 25.05 https://github.com/NVIDIA/apex
    python benchmarks/against_apex.py --apex apex
    python benchmarks/against_apex.py --apex apex --device cuda:0 --data DIR

25.05 is the last version of Apex with amp and fp16_utils. Both sides run the suite's own `train` on WikiText-2 in DIR,
or on random words. O0 to O3 replace the suite's Stepper by calls of `apex.amp`, and FP16_Optimizer is
`--set engine=apex`. Each level trains in a process of its own, because O1 replaces functions of torch. Prints the
losses of both sides and their largest difference, and ends with exit code 1 if two losses of a step differ.

Apex is written for CUDA. On a CPU, which is the default, a copy of the checkout is used. In it, only these names are
replaced, in `apex/amp` and `apex/fp16_utils`:

    torch.cuda.HalfTensor, torch.cuda.FloatTensor, torch.cuda.IntTensor  ->  torch.HalfTensor and so on
    x.is_cuda                                                            ->  x.is_cpu

Apex's C extensions are not needed: without them it uses Python code of its own. On a card nothing is replaced, and the
extensions are used if they are installed.

RNNs in O1 need a card: torch's autocast has no fp16 LSTM on a CPU, and Apex expects all weights of an RNN in the one
buffer that cuDNN makes. On a CPU, O1 is shown with the transformer.
"""

import argparse
import contextlib
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from gpubench.suites.wordlm import training
from torch.nn.utils import clip_grad_norm_

from gpubench.suite import files
from gpubench.suite.trial import Case, Trial
from gpubench.training import Notes, Stepper, precision
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for

WORDLM = files.find("wordlm")
LEVELS = {"O0": "fp32", "O1": "fp16", "O2": "fp16-master", "O3": "fp16-pure", "FP16_Optimizer": "fp16-master"}
"""Our precision for each level of Apex."""
REPLACED = {r"\btorch\.cuda\.(Half|Float|Int)Tensor\b": r"torch.\1Tensor", r"\.is_cuda\b": ".is_cpu"}
"""Patterns in Apex's source, and what replaces them on a CPU."""
BPTT = 35
Trained = tuple[list[float], int]
"""The loss of each step, and the number of steps that were skipped because a gradient overflowed."""


class AmpStepper:
    """Does what Stepper does by calls of `apex.amp`, as Apex's documentation makes them."""

    level = ""
    """Of this process, which can call `amp.initialize` only once."""

    def __init__(
        self,
        mode: precision.Mode,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        clock: Clock,
        *,
        clip_norm: float,
        loss_scale: float,
    ) -> None:
        from apex import amp

        self.amp, self.clip_norm, self.skipped_steps = amp, clip_norm, 0
        # It changes both in place, so that `train` goes on with the model that it has.
        _, self.optimizer = amp.initialize(model, optimizer, opt_level=self.level, verbosity=0)
        clock.note(lambda: Notes(skipped_steps=self.skipped_steps))

    def backward(self, loss: torch.Tensor) -> None:
        """Scale the loss, back-propagate, and unscale the gradients."""
        with self.amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()

    def step(self) -> None:
        """Clip and step unless a gradient overflowed; clear the gradients."""
        clip_grad_norm_(self.amp.master_params(self.optimizer), self.clip_norm)
        self.skipped_steps += self.optimizer._amp_stash.already_patched
        self.optimizer.step()
        self.optimizer.zero_grad()


def for_a_cpu(source: str) -> str:
    """Return a module of Apex with CUDA's names replaced by the CPU's."""
    for pattern, replacement in REPLACED.items():
        source = re.sub(pattern, replacement, source)
    return source


def copy_for_a_cpu(checkout: Path, folder: Path) -> None:
    """Copy the package of a checkout of Apex to `folder`, and replace CUDA's names in amp and fp16_utils."""
    shutil.copytree(checkout / "apex", folder / "apex")
    for part in ("amp", "fp16_utils"):
        for path in (folder / "apex" / part).rglob("*.py"):
            path.write_text(for_a_cpu(path.read_text()))


def why_not(model: str, level: str, device: str) -> str:
    """Return why `model` cannot be compared at `level` on `device`, or an empty string."""
    if level == "O1" and device == "cpu" and model != "transformer":
        return "an RNN needs a card: torch's autocast has no fp16 LSTM on a CPU"
    return ""


def trial_of(options: argparse.Namespace, model: str, name: str, engine: str = "torch") -> Trial:
    """Return a trial in precision `name` of one epoch, which has `--steps` steps."""
    settings = {
        "epochs": "1", "engine": engine, "bptt": str(BPTT), "valid_batch": "2", "valid_tokens": str(4 * BPTT),
        "train_tokens": str(options.batch * (options.steps * BPTT + 1)),
    }  # fmt: skip
    case = Case(
        suite="wordlm", suite_version=WORDLM.suite.version, suite_digest="", suite_path=str(WORDLM.path), model=model,
        precision=name, device=options.device, params=WORDLM.resolve_params(settings, model), batch_policy="fixed",
        batch_size=options.batch, mode="full", data="wikitext-2" if options.data else "synthetic",
    )  # fmt: skip
    return Trial(case, 0, options.seed, data_dir=str(options.data or ""))


def train(trial: Trial, stepper: type[Any]) -> Trained:
    """Train with a stepper of this class."""
    losses = []

    class Recorded(stepper):  # type: ignore[misc]
        def backward(self, loss: torch.Tensor) -> None:
            losses.append(loss.item())
            super().backward(loss)

    setattr(training, "ApexStepper" if trial.params.engine == "apex" else "Stepper", Recorded)
    torch.manual_seed(trial.seed)
    precision.set_flags(trial.case.precision, reduced_reduction=False, cudnn_benchmark=False)
    clock = Clock(sampling_for("full", accelerator=trial.case.device != "cpu"))
    clock.resident = tuple  # type: ignore[method-assign,assignment]  (no steps after the run)
    WORDLM.suite.train(trial, clock)
    return losses, clock.notes.skipped_steps or 0


def both(options: argparse.Namespace, model: str, level: str) -> tuple[Trained, Trained]:
    """Train with our Stepper, then with Apex's; return the losses of both. Call it once in a process."""
    name = LEVELS[level]
    ours = train(trial_of(options, model, name), Stepper)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):  # Apex prints warnings
        if options.device == "cpu":
            copy_for_a_cpu(options.apex, Path(folder))
        sys.path.insert(0, folder if options.device == "cpu" else str(options.apex))
        if level == "FP16_Optimizer":
            return ours, train(trial_of(options, model, name, engine="apex"), training.ApexStepper)
        AmpStepper.level = level
        return ours, train(trial_of(options, model, "fp32"), AmpStepper)  # amp converts an fp32 model


def largest_difference(ours: Sequence[float], apex: Sequence[float]) -> float:
    """Return the largest difference of the two losses of a step; infinity if one is not a number."""
    differences = [0.0 if one == other else abs(one - other) for one, other in zip(ours, apex, strict=True)]
    return max(difference if math.isfinite(difference) else math.inf for difference in differences)


def text_of(losses: Sequence[float]) -> str:
    """Return losses as text, with enough digits that two different float32 values differ."""
    return " ".join(f"{loss:.9g}" for loss in losses)


def main() -> None:
    """Compare each model at each level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apex", type=Path, required=True, help="a checkout of NVIDIA/apex at 25.05")
    parser.add_argument("--models", default="lstm,transformer")
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, help="a folder with the text; without it, random words")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=2, help="columns of the text; the article has 20")
    parser.add_argument("--seed", type=int, default=1111)
    options = parser.parse_args()
    if not (options.apex / "apex" / "amp").is_dir():
        parser.error(f"--apex: {options.apex} has no apex/amp; the last tag with it is 25.05")
    largest = 0.0
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1) as pool:
        for model in options.models.split(","):
            for level in options.levels.split(","):
                if reason := why_not(model, level, options.device):
                    print(f"{model}, {level}: {reason}\n", flush=True)
                    continue
                (ours, our_skips), (apex, apex_skips) = pool.submit(both, options, model, level).result()
                difference = largest_difference(ours, apex)
                largest = max(largest, difference)
                print(f"{model}, {level} and {LEVELS[level]}: losses differ by at most {difference:g}")
                print(f"apex ({apex_skips} skipped steps): {text_of(apex)}")
                print(f"ours ({our_skips} skipped steps): {text_of(ours)}\n", flush=True)
    sys.exit(1 if largest else 0)


if __name__ == "__main__":
    main()
