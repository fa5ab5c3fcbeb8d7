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


def test_its_steps_are_timms():
    timm = pytest.importorskip("timm.optim")
    ours, theirs = network(), network()
    for model in (ours, theirs):
        nn.init.zeros_(model[2].weight)  # no norm: the rate stays as it is
    groups = [
        {"params": [weight for weight in theirs.parameters() if weight.ndim > 1], "weight_decay": DECAY},
        {"params": [weight for weight in theirs.parameters() if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizers = [
        Lars(ours.parameters(), LR, momentum=MOMENTUM, decay=DECAY, trust=TRUST),
        timm.Lars(groups, lr=LR, momentum=MOMENTUM, trust_coeff=TRUST),
    ]
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
