"""One optimizer step in every precision: what is scaled, skipped, clipped, copied and counted."""

import math

import pytest
import torch
from facts import lacking
from torch import nn
from torch.nn.functional import cross_entropy

from gpubench.suite.precisions import PRECISIONS
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for
from gpubench.training.precision import KINDS, mode_of
from gpubench.training.stepper import Stepper, Tally

SCALED = ["fp16", "fp16-master"]
RATE = 2.0**-7


class One:
    """A single weight of 1 whose gradient is the factor of its loss; trained by plain SGD."""

    def __init__(self, name, *, lr=RATE, **options):
        self.mode = mode_of(name, "cpu")
        self.model = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.model.weight)
        self.mode.prepare(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.clock = Clock(sampling_for("full", accelerator=False))
        self.stepper = Stepper(self.mode, self.model, self.optimizer, self.clock, **options)

    def backward(self, factor=1.0):
        with self.mode.autocast():
            out = self.model(self.mode.input(torch.ones(1, 1)))
        self.stepper.backward(out.float().sum() * factor)

    def steps(self, *factors):
        for factor in factors:
            self.backward(factor)
            self.stepper.step()
        return self

    @property
    def weight(self):
        return self.model.weight.item()

    @property
    def notes(self):
        return self.clock.notes


def train(name, make, *, steps=30, **options):
    """A small network with BatchNorm after some steps on fixed numbers: (model, optimizer, notes).

    No bias before BatchNorm: its gradient is rounding alone, of which Adam makes whole steps.
    """
    torch.manual_seed(0)
    mode = mode_of(name, "cpu")
    model = mode.prepare(nn.Sequential(nn.Linear(16, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer, clock = make(model.parameters()), Clock(sampling_for("full", accelerator=False))
    stepper = Stepper(mode, model, optimizer, clock, **options)
    x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
    for _ in range(steps):
        with mode.autocast():
            scores = model(mode.input(x))
        stepper.backward(cross_entropy(scores.float(), y))
        stepper.step()
    return model, optimizer, clock.notes


def sgd(weights):
    return torch.optim.SGD(weights, lr=0.05, momentum=0.9)


def adamw(weights):
    return torch.optim.AdamW(weights, lr=3e-3, fused=True)


def trained_weights(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


# Master weights


@pytest.mark.parametrize("make", [sgd, adamw])
def test_master_weights_stay_float32_and_follow_a_float32_run(make):
    _, reference, _ = train("fp32", make)
    model, optimizer, notes = train("fp16-master", make, loss_scale=1024)
    masters = trained_weights(optimizer)
    assert {master.dtype for master in masters} == {torch.float32}
    for master, exact in zip(masters, trained_weights(reference), strict=True):
        torch.testing.assert_close(master, exact, rtol=5e-3, atol=5e-3)
    for weight, master in zip(model.parameters(), masters, strict=True):
        assert torch.equal(weight, master.to(weight.dtype))
    assert notes.weights == {"model float16": 3, "BatchNorm float32": 4, "optimizer float32": 3}
    assert (notes.loss_scale, notes.skipped_steps, notes.nonfinite_losses, notes.diverged) == (1024, 0, 0, "")


def test_which_weights_need_masters():
    """Next below 1 fp16 has 1 - 2**-11: steps of 1e-4 vanish there one by one."""
    assert One("fp16-master", lr=1e-4).steps(*[1] * 100).weight == pytest.approx(0.99, abs=5e-4)
    assert One("fp16-pure", lr=1e-4).steps(*[1] * 100).weight == 1
    model = mode_of("fp16-master", "cpu").prepare(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    model[0].requires_grad_(False)
    frozen = model[0].weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = Stepper(mode_of("fp16-master", "cpu"), model, optimizer, Clock(sampling_for("full", accelerator=False)))
    stepper.backward(model(torch.ones(1, 2).half()).float().sum() / 2)
    stepper.step()
    assert torch.equal(model[0].weight, frozen)
    assert stepper.notes().weights == {"model float16": 4, "optimizer float32": 2}
    assert [name for name in KINDS if One(name).stepper.plain] == ["fp32", "tf32", "bf16", "float8", "int8-mixed"]


def test_two_optimizers_step_together():
    mode = mode_of("fp16-master", "cpu")
    model = mode.prepare(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    before = [weight.clone() for weight in model.parameters()]
    both = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
    stepper = Stepper(mode, model, both, Clock(sampling_for("full", accelerator=False)), loss_scale=8)
    stepper.backward(model(torch.ones(1, 2).half()).float().sum())
    stepper.step()
    assert {w.dtype for optimizer in both for w in trained_weights(optimizer)} == {torch.float32}
    assert not any(torch.equal(weight, old) for weight, old in zip(model.parameters(), before, strict=True))


# Loss scale


@pytest.mark.parametrize("name", SCALED)
def test_a_fused_sgd_whose_first_step_is_skipped_begins_its_momentum_at_zero(name):
    def weights(*factors):
        torch.manual_seed(0)
        model = mode_of(name, "cpu").prepare(nn.Linear(64, 64, bias=False))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, fused=True)
        clock = Clock(sampling_for("full", accelerator=False))
        stepper = Stepper(mode_of(name, "cpu"), model, optimizer, clock, loss_scale=128)
        x = torch.ones(1, 64, dtype=model.weight.dtype)
        for factor in factors:
            stepper.backward(model(x).float().sum() * factor)
            stepper.step()
        return model.weight.detach().clone()

    assert torch.equal(weights(math.inf, 1.0, 1.0), weights(1.0, 1.0))


@pytest.mark.parametrize("name", SCALED)
def test_a_scale_that_is_too_high_recovers_or_is_counted(name):
    """From 65536 it takes 7 halvings until a gradient of 64 fits into fp16, whose largest number is 65504."""
    one = One(name).steps(*[64] * 7)
    assert one.weight == 1
    one.steps(64)
    assert one.weight == 1 - 64 * RATE
    assert (one.notes.loss_scale, one.notes.skipped_steps, one.notes.diverged) == (512, 7, "")
    one = One(name, loss_scale=4096).steps(1, 64, 1, 64, 64)
    assert one.weight == 1 - 2 * RATE
    assert (one.notes.loss_scale, one.notes.skipped_steps, one.notes.diverged) == (4096, 3, "")
    assert lacking(One(name, loss_scale=4096).steps(64, 64).notes.diverged, "2 steps", "skipped", 4096) == []


def test_pure_fp16_divides_by_its_scale_skips_nothing_and_tells_of_an_overflow():
    for scale in (None, 1024):
        one = One("fp16-pure", loss_scale=scale).steps(1, 2)
        assert one.weight == 1 - 3 * RATE
        assert (one.notes.loss_scale, one.notes.skipped_steps) == (scale or 1, None)
    notes = One("fp16-pure").steps(1, 1e6).notes
    assert notes.nonfinite_losses == 0
    assert lacking(notes.diverged, 1, "not finite", "2 losses") == []


@pytest.mark.parametrize("name", [name for name in KINDS if name not in SCALED])
def test_where_nothing_is_scaled_no_skipped_step_is_claimed(name):
    notes = One(name).steps(1).notes
    assert notes.skipped_steps is None
    assert notes.loss_scale == (1 if PRECISIONS[name].pure else None)


# Clipping and adding up


@pytest.mark.parametrize("name", KINDS)
def test_gradients_are_unscaled_before_they_are_clipped(name):
    one = One(name, clip_norm=0.5, loss_scale=256).steps(16, 0.25)
    assert one.weight == pytest.approx(1 - RATE * 0.75, abs=max(1e-3, torch.finfo(KINDS[name].weights).eps))


@pytest.mark.parametrize("name", KINDS)
def test_several_backwards_before_a_step_add_up(name):
    one = One(name, loss_scale=256)
    one.backward(1)
    one.backward(2)
    one.stepper.step()
    one.steps(1)  # and a step forgets them
    assert one.weight == 1 - 4 * RATE


# What went wrong


def test_losses_weights_and_statistics_that_are_lost_are_counted():
    assert lacking(One("fp32").steps(1, math.inf).notes.diverged, "loss", "not finite", 1, 2) == []
    notes = One("fp16").steps(math.nan, 1, 1).notes
    assert (notes.nonfinite_losses, notes.skipped_steps, notes.diverged) == (1, 1, "")
    one = One("fp32").steps(1)
    one.model.register_buffer("mask", torch.tensor([0.0, -math.inf]))
    assert one.stepper.notes().diverged == ""
    one.model.norm = nn.BatchNorm1d(1)
    one.model.norm.running_mean.fill_(math.nan)
    assert "1 of the model's weights and statistics" in one.stepper.notes().diverged


def test_the_tally_counts_across_its_folds():
    tally = Tally()
    for number in range(700):
        tally.add(torch.tensor(math.nan if number % 100 == 0 else 1.0))
    assert (tally.total, tally.count, tally.last_is_bad) == (700, 7, False)
    tally.add(torch.tensor(math.inf))
    assert (tally.count, tally.last_is_bad) == (8, True)
