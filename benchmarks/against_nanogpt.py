"""Does `gpt` train like karpathy/nanoGPT? Equal weights and batches, 50 steps in fp32 on one CPU thread.

    python benchmarks/against_nanogpt.py NANOGPT --data DIR --rounds 6

NANOGPT is a checkout of karpathy/nanoGPT, DIR a folder with `wikitext-2/`. nanoGPT's train.py runs unchanged in its own
process. Its first weights, batches and losses are stored, and ours trains with the same weights and batches. Prints the
largest difference of two losses and, for each round, the ratio of CPU seconds per token (ours / nanoGPT's), with the
95% interval of the median ratio.
"""

import argparse
import pickle
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gpubench.suites.gpt.training import Gpt, optimizers_of, rate_at

from gpubench.analysis.stats import median, median_interval
from gpubench.training import Stepper, mode_of
from gpubench.training.sequences import CLIP_NORM, set_rates

STEPS, WARMUP, DECAY_STEPS, RATE = 50, 10, 100, 1e-3
SIZES = {"layers": 4, "heads": 4, "width": 128, "context": 128}
BATCH = 8
NAMES = {
    "transformer.wte": "tokens",
    "transformer.wpe": "positions",
    "transformer.h": "layers",
    "transformer.ln_f": "norm",
    "lm_head": "logits",
    "ln_1": "attention.0",
    "attn.c_attn": "attention.1",
    "attn.c_proj": "attention.3",
    "ln_2": "perceptron.0",
    "mlp.c_fc": "perceptron.1",
    "mlp.c_proj": "perceptron.3",
}
"""Names of nanoGPT's weights, and ours."""


def keep_nanogpt(checkout: str, kept: Path) -> None:
    """Run nanoGPT's train.py in this process; write its first weights, and each step's batch, loss and CPU time."""
    torch.set_num_threads(1)
    sys.path.insert(0, checkout)
    import model

    steps: list[tuple[torch.Tensor, torch.Tensor, float, float]] = []
    weights: dict[str, torch.Tensor] = {}

    class Kept(model.GPT):  # type: ignore[misc, name-defined]
        def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> Any:
            if not weights:
                weights.update({name: value.clone() for name, value in self.state_dict().items()})
            began = time.process_time()
            scores, loss = super().forward(tokens, targets)
            if self.training:
                steps.append((tokens, targets, loss.item(), began))
            return scores, loss

    model.GPT = Kept
    settings = {
        "dataset": "bytes", "device": "cpu", "dtype": "float32", "compile": False, "eval_iters": 1,
        "eval_interval": 1000, "gradient_accumulation_steps": 1, "batch_size": BATCH, "block_size": SIZES["context"],
        "n_layer": SIZES["layers"], "n_head": SIZES["heads"], "n_embd": SIZES["width"], "dropout": 0.0, "bias": False,
        "learning_rate": RATE, "min_lr": RATE / 10, "warmup_iters": WARMUP, "lr_decay_iters": DECAY_STEPS,
        "max_iters": STEPS, "always_save_checkpoint": False,
    }  # fmt: skip
    sys.argv = ["train.py", *(f"--{name}={value}" for name, value in settings.items())]
    runpy.run_path(f"{checkout}/train.py", run_name="__main__")
    torch.save({"weights": weights, "steps": steps}, kept)


def our_losses(kept: dict[str, Any]) -> tuple[list[float], float]:
    """Return our loss of each of nanoGPT's steps, and the CPU seconds per step without the first."""
    torch.set_num_threads(1)
    network = Gpt(vocabulary=256, **SIZES)
    network.load_state_dict({_our_name(name): value for name, value in kept["weights"].items()})
    params = SimpleNamespace(optimizer="adamw", lr=RATE)
    optimizers = optimizers_of(SimpleNamespace(params=params, case=SimpleNamespace(device="cpu")), network)  # type: ignore[arg-type]
    clock: Any = SimpleNamespace(note=lambda notes: None)
    stepper = Stepper(mode_of("fp32", "cpu"), network, optimizers, clock, clip_norm=CLIP_NORM)
    losses, began = [], 0.0
    for taken, (tokens, targets, _, _) in enumerate(kept["steps"]):
        began = time.process_time() if taken == 1 else began
        set_rates(optimizers, rate_at(taken, DECAY_STEPS, WARMUP))
        loss = network(tokens, targets)
        stepper.backward(loss)
        stepper.step()
        losses.append(loss.item())
    return losses, (time.process_time() - began) / (len(losses) - 1)


def _our_name(name: str) -> str:
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return name


def main() -> None:
    """Run the rounds, each in new processes, in an order that alternates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanogpt", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--keep", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ours", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.keep:
        return keep_nanogpt(str(options.nanogpt), options.keep)
    if options.ours:
        losses, seconds = our_losses(torch.load(options.ours, weights_only=True))
        print(*losses, seconds)
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "data" / "bytes"
        text.mkdir(parents=True)
        for split, file in (("train", "train"), ("valid", "val")):
            np.fromfile(options.data / "wikitext-2" / f"{split}.txt", np.uint8).astype(np.uint16).tofile(
                text / f"{file}.bin"
            )
        shutil.copy(options.nanogpt / "configurator.py", folder)  # train.py reads it from the working folder
        (text / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 256}))
        ratios = [_round(options, folder) for _ in range(options.rounds)]
    interval = median_interval(ratios)
    print(f"CPU seconds per token, ours over nanoGPT's: {median(ratios):.3f}, 95% interval {interval}")
    return None


def _round(options: argparse.Namespace, folder: Path) -> float:
    """Run both once; print the difference of the losses and return the ratio of CPU seconds per step."""
    kept = folder / "kept.pt"
    here = [
        sys.executable,
        str(Path(__file__).resolve()),
        str(options.nanogpt.resolve()),
        "--data",
        str(options.data.resolve()),
    ]
    subprocess.run([*here, "--keep", str(kept)], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([*here, "--ours", str(kept)], cwd=folder, check=True, capture_output=True, text=True)
    *losses, seconds = (float(word) for word in done.stdout.split())
    steps = torch.load(kept, weights_only=True)["steps"]
    theirs = (steps[-1][3] - steps[1][3]) / (len(steps) - 2)
    difference = max(abs(loss - step[2]) for loss, step in zip(losses, steps, strict=True))
    ratio = seconds / theirs
    print(f"{len(steps)} steps: losses differ by at most {difference:.1e}; CPU seconds, ours over theirs: {ratio:.3f}")
    return ratio


if __name__ == "__main__":
    main()
