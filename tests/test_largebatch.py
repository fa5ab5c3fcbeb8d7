"""Large batches: the suite largebatch, its fp16 norms that underflow, and LARS, whose steps equal timm's."""

import pytest
import torch
from gpubench.suites.largebatch import training
from measured_rows import rows_of_run
from small_trials import MIXED, run_trial, small_trial
from torch import nn
from waiting import Waits

from gpubench.errors import UserError
from gpubench.suite import files
from gpubench.training.lars import Lars


def test_the_learning_rate_rises_then_falls_to_zero():
    rates = [training.rate_at(step, 10, 0.2) for step in range(11)]
    assert rates[:2] == [0.5, 1.0]
    assert rates[2] == 1.0
    assert sorted(rates[2:], reverse=True) == rates[2:]
    assert rates[10] == 0


@pytest.mark.parametrize(("gradient", "lost"), [(1e-2, False), (1e-5, True)])
def test_norms_in_fp16_lose_small_gradients_and_those_in_fp32_do_not(gradient, lost):
    """A LARS step does not depend on the gradient's size, unless its square is 0 in fp16."""
    moved = {}
    for name in ("lars", "lars-fp16-norms"):
        layer = torch.nn.Linear(64, 64, bias=False)
        torch.nn.init.constant_(layer.weight, 0.1)
        optimizer = training.optimizer_of(name, layer)
        layer.weight.grad = torch.full_like(layer.weight, gradient)
        optimizer.step()
        moved[name] = float((layer.weight.detach() - 0.1).norm())
    assert moved["lars"] == pytest.approx(1e-3 * 6.4, rel=0.01)
    if lost:
        assert moved["lars-fp16-norms"] < moved["lars"] / 1.5
    else:
        assert moved["lars-fp16-norms"] == pytest.approx(moved["lars"], rel=0.05)


@pytest.mark.parametrize(
    ("name", "processes"),
    [("lars", 1), *(pytest.param(name, 2, marks=[pytest.mark.e2e, pytest.mark.slow]) for name in ("sgd", "lars"))],
)
def test_it_trains_with_steps_larger_than_a_batch(cli, cli_process, tmp_path, name, processes):
    run = cli if processes == 1 else cli_process
    options = ("--precision", MIXED, "--full", "--synthetic", "--batch", 8, "--processes", processes)
    sizes = {"global_batch": 50, "train_images": 112, "valid_images": 25, "epochs": 2, "width": 4}
    frame = rows_of_run(run, tmp_path, "largebatch", *options, optimizer=name, **sizes)
    assert frame["samples"][0] == 224


@pytest.mark.parametrize("sizes", [{"global_batch": "7"}, {"global_batch": "32", "train_images": "24"}])
def test_a_step_that_is_no_multiple_of_the_batch_or_larger_than_an_epoch_is_refused(sizes):
    suite = files.find("largebatch")
    with pytest.raises(UserError, match=r"at least 8 \(a --batch of 8 each\)"):
        run_trial(suite, small_trial(suite, "small", "fp32", sizes))


LR, MOMENTUM, DECAY, TRUST = 0.5, 0.9, 5e-5, 1e-3


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 40, 3), nn.BatchNorm2d(40), nn.Conv2d(40, 8, 1, bias=False), nn.Linear(6, 4))
    return model.to(memory_format=torch.channels_last)


def gradients(model, step, scale=1.0):
    """Set new random gradients, in another memory layout than the weights (as autograd's often are)."""
    dice = torch.Generator().manual_seed(step)
    for weight in model.parameters():
        weight.grad = scale * torch.randn(weight.shape, generator=dice)


def test_lars_steps_equal_timms():
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


@pytest.mark.parametrize(("name", "unscaled"), [("lars", False), ("lars", True), ("lars-fp16-norms", False)])
def test_scaled_steps_are_equal_overflows_are_skipped_and_nothing_synchronises(name, unscaled):
    plain, scaled = network(), network()
    optimizers = [training.optimizer_of(name, model) for model in (plain, scaled)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    scaler.scale(torch.ones(()))
    with Waits() as waits:
        for step in range(4):
            gradients(plain, step)
            gradients(scaled, step, scale=2.0 ** (10 if step < 2 else 9))
            if step == 1:  # an overflow
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
