"""Compares computed with real peak memory of training steps on a CPU: `python benchmarks/fits.py`, about 5 minutes.

`gpubench fits` computes the peak of a step from shapes. Here a new process takes two real steps of the same training.
Its peak is the highest resident memory that Linux counted in these steps, minus the memory after two steps with one
short sequence. MALLOC_MMAP_THRESHOLD_ makes glibc return freed tensors at once.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import torch

from gpubench.cli.fits import case_of
from gpubench.suite import files
from gpubench.suite.trial import Trial
from gpubench.training import Stepper, mode_of
from gpubench.worker.step_memory import step_memory

STEPS = 2
CASES = [
    (model, method, precision, batch, context)
    for precision in ("fp32", "bf16")
    for model, batch, context in (("smollm-135m", 1, 128), ("llama-6m", 8, 512), ("gpt2-6m", 8, 512))
    for method in (("",) if model.startswith("gpt2") else ("full", "lora"))
]


def trial_of(model: str, method: str, precision: str, batch: int, context: int) -> Trial:
    """Return the trial of a case."""
    settings = {"context": str(context), **({"method": method, "checkpointing": "false"} if method else {})}
    return Trial(case_of(model, settings, precision, batch, ""), index=0, seed=0)


def real_peak(trial: Trial) -> int:
    """Return the peak memory of two steps in this process, in bytes."""
    take_steps(replace(trial, case=replace(trial.case, batch_size=1)), context=8)
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    take_steps(trial, context=trial.params.context)
    return resource_peak() - before


def resource_peak() -> int:
    """Return the highest resident memory of this process so far, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def take_steps(trial: Trial, context: int) -> None:
    """Train for two steps."""
    blueprint: Any = files.find(trial.case.suite).suite.blueprint
    plan = blueprint(trial)
    mode = mode_of(trial.case.precision, "cpu")
    clock: Any = SimpleNamespace(note=lambda notes: None)
    stepper = Stepper(mode, plan.network, plan.optimizers(), clock)
    for _ in range(STEPS):
        with mode.autocast():
            loss = plan.network(*(torch.randint(256, (trial.batch_size, context)) for _ in plan.inputs))
        stepper.backward(loss)
        del loss
        stepper.step()


def main() -> None:
    """Print computed and real peak of each case, in GiB."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", help="take the real steps of a case, as JSON, and print their peak")
    words = parser.parse_args()
    if words.case:
        print(real_peak(trial_of(*json.loads(words.case))))
        return
    print(f"{'model':<12} {'method':<6} {'precision':<9} {'step':>8}  computed  real peak  computed / real")
    for case in CASES:
        command = [sys.executable, __file__, "--case", json.dumps(case)]
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        real = int(done.stdout.split()[-1]) / 2**30
        computed = step_memory(trial_of(*case), [0.0])[0]["peak"] / 2**30
        model, method, precision, batch, context = case
        step = f"{batch}x{context}"
        print(
            f"{model:<12} {method:<6} {precision:<9} {step:>8}  {computed:8.2f}  {real:9.2f}  {computed / real:8.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
