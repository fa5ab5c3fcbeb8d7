"""Trainings on a stand-in for a card: which device, and who waits for it. Only where the stand-in is loaded."""

import os
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from gpubench.suites.cifar10 import training as cifar10
from small_trials import small_trial
from waiting import Waits

from gpubench.suite import files
from gpubench.training import device as devices
from gpubench.training import precision
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif("libfakecudart" not in os.environ.get("LD_PRELOAD", ""), reason="no stand-in for CUDA"),
]
FEW = {"train_images": "32", "valid_images": "16", "epochs": "1"}
CASES = {
    "resnet": ("resnet18", {**FEW, "image_size": "32"}),
    "wordlm": ("lstm", {"emsize": "8", "nhid": "8", "bptt": "5", "epochs": "1"}),
    "gpt": ("gpt2-6m", {"layers": "1", "width": "32", "context": "16", "tokens": "256", "valid_tokens": "32"}),
    "cifar10": ("speedrun", FEW),
    "imagenet": ("resnet18", {"train_images": "32", "valid_images": "16", "phases": "tiny"}),
    "scaling": ("resnet50", {"image_size": "64", "accumulate": "2"}),
    "reference": ("bert-base", {"layers": "1"}),
    "largebatch": ("small", {**FEW, "width": "4", "global_batch": "16"}),
    "tricks": ("loading", {**FEW, "test_images": "16", "width": "2", "workers": "1"}),
}
"""By suite, a model and parameters that make it small."""


class Counting(Clock):
    """Counts, for each training step with all that leads to it, the calls that make the host wait."""

    def __init__(self, mode, waits, device):
        super().__init__(sampling_for(mode, accelerator=True), synchronize=lambda: devices.synchronize(device))
        self.waits, self.by_step = waits, []

    def steps(self, loader, phase, *arguments, **options):
        before = None
        for batch in super().steps(loader, phase, *arguments, **options):
            if phase == "train" and before is not None:
                self.by_step.append(dict(self.waits.seen - before))
            before = self.waits.seen.copy()
            yield batch


@contextmanager
def on(device, name):
    precision.set_flags(name, reduced_reduction=False, cudnn_benchmark=False)
    torch.manual_seed(1)
    yield devices.open_device(device, None)
    precision.set_flags("fp32", reduced_reduction=False, cudnn_benchmark=False)


def trial_of(of_suite, model, name, device, batch=8, mode="quick", **settings):
    loaded = files.find(of_suite)
    trial = small_trial(loaded, model, name, settings, mode=mode, batch=batch, weights="random", device=device)
    return loaded.suite, trial


@pytest.mark.parametrize("name", ["fp32", "tf32", "fp16", "bf16", "fp16-master", "fp16-pure"])
@pytest.mark.parametrize("of_suite", CASES)
def test_no_training_step_waits_for_the_card(of_suite, name):
    model, settings = CASES[of_suite]
    if of_suite == "wordlm" and name == "bf16":
        model = "transformer"  # RNNs are refused there
        settings = {**settings, "nhead": "2"}
    found, trial = trial_of(of_suite, model, name, "cuda:0", **settings)
    if name.startswith("fp16-") and found.refuse and (why := found.refuse(trial.case)):
        pytest.skip(why)
    waits = Waits("cuda:0")
    with on("cuda:0", name) as device:
        clock = Counting("quick", waits, device)
        with waits:
            found.train(trial, clock)
    assert len(clock.by_step) >= 1
    # fastai's recorder of the mean loss copies each loss to the host, whoever trains with it.
    own = {"_to_copy": 1} if of_suite == "resnet" else {}
    assert all(step == own for step in clock.by_step), clock.by_step


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp16-pure"])
def test_a_whole_run_of_speedrun_learns_and_waits_for_the_card_at_its_end_alone(name, monkeypatch):
    """From the first step to the last evaluation the host runs ahead; then it reads the result, once: 8 bytes.

    The images grow from 20 to 24 and 32 pixels, and from the third epoch on a quarter is left out.
    """
    few = {**FEW, "epochs": "6", "train_images": "64", "runs_per_process": "2"}
    found, trial = trial_of("cifar10", "speedrun", name, "cuda:0", mode="full", batch=16, **few)
    syncs, at_steps, at_ends, losses, edges = [], [], [], [], []
    step, whole = cifar10.Run.step, cifar10.Run.whole

    def stepping(run, batch):
        at_steps.append(so_far())
        edges.append(batch[0].shape[-1])
        losses.append(step(run, batch))
        return losses[-1]

    def running(run, images):
        for kept in (at_steps, losses, edges):
            kept.clear()
        quality = whole(run, images)
        at_ends.append([now - before for now, before in zip(so_far(), at_steps[0], strict=True)])
        return quality

    def so_far():
        return waits.seen.total(), len(syncs), waits.copied_bytes

    monkeypatch.setattr(cifar10.Run, "step", stepping)
    monkeypatch.setattr(cifar10.Run, "whole", running)
    waits = Waits("cuda:0")
    with on("cuda:0", name) as device:
        clock = Clock(
            replace(sampling_for("full", accelerator=True), resident_seconds=0.0, lap_seconds=0.0),
            synchronize=lambda: syncs.append(devices.synchronize(device)),
        )
        with waits:
            found.train(trial, clock)
    assert at_ends == [[1, 0, 8], [1, 0, 8]]
    laps = clock.summary()["laps"]
    steps = 2 * 4 + 4 * 3
    assert sum(lap.steps for lap in laps if lap.phase == "train" and lap.kind != "resident") == steps
    assert edges[:steps] == [20] * 8 + [24] * 3 + [32] * 9
    by_step = torch.stack(losses[:steps]).float().cpu()
    assert by_step.isfinite().all()
    assert by_step[-3:].mean() < by_step[:4].mean() - 0.1
    assert all(lap.seconds >= 0 for lap in laps)
