"""LARS: the steps of timm's, in few operations, without a wait, and none where a gradient overflowed."""

import pytest
import torch
from torch import nn
from waiting import Waits

from gpubench.training.lars import Lars

LR, MOMENTUM, DECAY, TRUST = 0.5, 0.9, 5e-5, 1e-3


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 40, 3), nn.BatchNorm2d(40), nn.Conv2d(40, 8, 1, bias=False), nn.Linear(6, 4))
    return model.to(memory_format=torch.channels_last)


def gradients(model, step, scale=1.0):
    """Different ones each step, laid out as autograd's often are: not as the weights."""
    dice = torch.Generator().manual_seed(step)
    for weight in model.parameters():
        weight.grad = scale * torch.randn(weight.shape, generator=dice)


class OfThePaper:
    """LARS as timm 1.0 writes it (timm/optim/lars.py)."""

    def __init__(self, model):
        self.weights = list(model.parameters())
        self.momenta = [torch.zeros_like(weight) for weight in self.weights]

    @torch.no_grad()
    def step(self):
        for weight, momentum in zip(self.weights, self.momenta, strict=True):
            gradient = weight.grad
            if weight.ndim > 1:
                size, slope = weight.norm(), gradient.norm()
                trust = TRUST * size / (slope + size * DECAY + 1e-8)
                gradient = (gradient + DECAY * weight) * (trust if size > 0 and slope > 0 else 1.0)
            momentum.mul_(MOMENTUM).add_(gradient)
            weight.sub_(LR * momentum)


def of_timm(model):
    timm = pytest.importorskip("timm.optim")
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    return timm.Lars(groups, lr=LR, momentum=MOMENTUM, trust_coeff=TRUST)


@pytest.mark.parametrize("reference", [OfThePaper, of_timm])
def test_its_steps_are_those_of_the_reference(reference):
    ours, theirs = network(), network()
    with torch.no_grad():
        ours[2].weight.zero_()  # no norm: the rate stays as it is
        theirs[2].weight.zero_()
    optimizers = [Lars(ours.parameters(), LR, momentum=MOMENTUM, decay=DECAY, trust=TRUST), reference(theirs)]
    for step in range(4):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            gradients(model, step)
            optimizer.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("unscaled", [False, True])
def test_a_scaled_step_is_the_same_and_an_overflow_changes_nothing_and_nobody_waits(unscaled):
    plain, scaled = network(), network()
    optimizers = [Lars(each.parameters(), LR, momentum=MOMENTUM, decay=DECAY) for each in (plain, scaled)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    scaler.scale(torch.ones(()))
    with Waits() as waits:
        for step in range(4):
            gradients(plain, step)
            gradients(scaled, step, scale=2.0 ** (10 if step < 2 else 9))
            if step == 1:  # one that overflows
                scaled[0].weight.grad[0] = float("inf")
            else:
                optimizers[0].step()
            if unscaled:
                scaler.unscale_(optimizers[1])
            scaler.step(optimizers[1])
            scaler.update()
    assert not waits.seen
    for one, other in zip(plain.parameters(), scaled.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
