"""The resnet suite, small: it trains through fastai's Learner, in every recipe, pipeline and precision."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from fastai.learner import Learner
from fastai.losses import CrossEntropyLossFlat
from gpubench.suites.resnet import data, training
from measured_rows import rows_of_run
from small_trials import run_trial, small_trial

from gpubench.suite import files
from gpubench.training import precision

RESNET = files.find("resnet")
SMALL = {"image_size": "32", "train_images": "8", "valid_images": "4", "epochs": "1", "workers": "1"}


def run_small(monkeypatch, *, mode="full", model="resnet18", name="fp32", batch=4, **settings):
    """One trial inside this process; returns (quality, clock, watch, calls of fit_one_cycle)."""
    calls = []
    original = Learner.fit_one_cycle

    def spy(self, epochs, lr, **options):
        calls.append((epochs, lr))
        return original(self, epochs, lr, **options)

    monkeypatch.setattr(Learner, "fit_one_cycle", spy)
    trial = small_trial(
        RESNET, model, name, {**SMALL, **settings}, mode=mode, batch=batch, data="synthetic", weights="random"
    )
    quality, clock, watch = run_trial(RESNET, trial)
    return quality, clock, watch, calls


@pytest.mark.parametrize(
    ("recipe", "pipeline", "name"),
    [
        ("full", "device", "bf16"),
        ("full", "workers", "fp32"),
        ("article", "device", "fp32"),
        pytest.param("article", "workers", "bf16", marks=pytest.mark.e2e),
    ],
)
def test_it_trains_through_fit_one_cycle_where_it_was_told_to(monkeypatch, name, recipe, pipeline):
    """fastai has a default device, the card of a machine that has one: a trial on the CPU must not go there."""
    for module in ("fastai.callback.core", "fastai.learner"):
        monkeypatch.setattr(f"{module}.default_device", lambda: torch.device("meta"))
    quality, clock, watch, calls = run_small(monkeypatch, name=name, recipe=recipe, pipeline=pipeline)
    assert set(watch.devices) == {"cpu"}
    assert calls == [(1, 3e-3 if recipe == "full" else 1e-2 if name == "fp32" else slice(3e-3))]
    summary = clock.summary()
    assert summary["measured"]
    assert summary["samples"] == 8
    assert summary["valid_seconds"] > 0
    assert 0 <= quality["accuracy"] <= 1
    assert quality["loss"] > 0
    assert watch.check(name)
    assert clock.watched_samples


def test_a_lone_last_sample_is_left_out_and_a_sampled_run_claims_no_accuracy(monkeypatch):
    _, clock, _, _ = run_small(monkeypatch, epochs="3", train_images="9")
    summary = clock.summary()
    assert summary["samples"] == 3 * 8
    assert {lap.epoch for lap in summary["laps"] if lap.kind != "resident"} == {0, 1, 2}
    assert not summary["measured"], "the time of the sample is projected"
    quality, clock, _, _ = run_small(monkeypatch, mode="sampled", epochs="30")
    assert quality == {}
    summary = clock.summary()
    assert (summary["epochs"], summary["measured"]) == (30, False)


def test_the_pooled_split_of_the_article():
    x = torch.arange(60_000)
    trial = small_trial(RESNET, "resnet18", "fp32", {"recipe": "article"}, data="cifar100")
    (kept, _), (held_out, _) = data.split((x[:50_000], x[:50_000], x[50_000:], x[50_000:]), trial)
    assert (len(kept), len(held_out)) == (48_000, 12_000)
    assert len(set(kept.tolist()) | set(held_out.tolist())) == 60_000


@pytest.mark.parametrize(
    ("model", "precision", "batch"),
    [("resnet18", "fp32", 408), ("resnet18", "fp16-master", 720), ("resnet152", "bf16", 88)],
)
def test_the_article_has_the_batches_of_its_notebooks(model, precision, batch):
    params = RESNET.resolve_params({"recipe": "article"})
    assert RESNET.suite.recipe_batch(model, params, precision) == batch
    assert RESNET.suite.recipe_batch(model, RESNET.resolve_params({}), precision) == 0
    assert params["loss_scale"] == 512
    case = small_trial(RESNET, model, precision, {"recipe": "article"}, batch=batch).case
    assert "--batch 16" in RESNET.suite.refuse(case)
    assert RESNET.suite.refuse(replace(case, device="cuda:0")) == ""


def fastai_1_rates(step, steps, groups):
    """The learning rate of each group and the momentum of a step, as fastai 1.0.39's OneCycleScheduler sets them."""
    rise = int(steps * 0.3)
    lows, highs = [high / 25 for high in groups], groups

    def between(start, end, share):
        return end + (start - end) / 2 * (math.cos(math.pi * share) + 1)

    if step <= rise:
        return [between(*ends, step / rise) for ends in zip(lows, highs, strict=True)], between(0.95, 0.85, step / rise)
    share = (step - rise) / (steps - rise)
    return [between(high, high / 25e4, share) for high in highs], between(0.85, 0.95, share)


def test_the_article_trains_as_a_plain_loop_of_fastai_1(monkeypatch):
    """20 steps of two epochs beside Adam with betas that end in 0.99, decoupled decay, and fastai 1's groups."""
    copies, inputs, losses, learner = [], [], [], training.learner

    def before(network, batch):
        if network.training and len(inputs) < 20:
            copies.append(copy.deepcopy(network) if not copies else None)
            inputs.append((batch[0].clone(), torch.get_rng_state()))

    def keep(trial, batches, clock, network, **options):
        network.register_forward_pre_hook(before)
        return learner(trial, batches, clock, network, **options)

    class Kept(CrossEntropyLossFlat):
        def __call__(self, scores, labels, **options):
            loss = super().__call__(scores, labels, **options)
            if scores.requires_grad and len(losses) < 20:
                losses.append((torch.Tensor(labels).long(), float(loss.detach())))
            return loss

    monkeypatch.setattr(training, "learner", keep)
    monkeypatch.setattr(training, "CrossEntropyLossFlat", Kept)
    settings = {"recipe": "article", "pipeline": "device", "epochs": "2", "train_images": "177"}
    run_small(monkeypatch, model="resnet34", batch=16, **settings)
    assert len(inputs) == len(losses) == 20, "of 22: an epoch leaves one image out"
    network = copies[0]
    network._forward_pre_hooks.clear()
    body, head = network
    norms = {
        weight for layer in body.modules() if isinstance(layer, torch.nn.BatchNorm2d) for weight in layer.parameters()
    }
    assert {weight for weight in body.parameters() if weight.requires_grad} == norms
    assert all(weight.requires_grad for weight in head.parameters())
    assert not any(layer.bias.any() for layer in head if isinstance(layer, torch.nn.Linear))
    parts = [[w for w in part.parameters() if w.requires_grad] for part in (body[:6], body[6:], head)]
    adam = torch.optim.Adam([{"params": part} for part in parts], betas=(0.95, 0.99), fused=True)
    for step, ((x, state), (labels, expected)) in enumerate(zip(inputs, losses, strict=True)):
        rates, momentum = fastai_1_rates(step, 22, [3e-4, 3e-4, 3e-3])
        torch.set_rng_state(state)  # the same dropout
        loss = torch.nn.functional.cross_entropy(network(x), labels)
        assert float(loss.detach()) == pytest.approx(expected, rel=2e-4), step
        loss.backward()
        for group, rate in zip(adam.param_groups, rates, strict=True):
            group["lr"], group["betas"] = rate, (momentum, 0.99)
            for weight in group["params"]:
                weight.data.mul_(1 - 0.01 * rate)
        adam.step()
        adam.zero_grad()


def test_the_articles_transforms_are_fastai_1s():
    """Without a draw the image is only resized, corner on corner; each change comes with its probability."""
    ramp = torch.linspace(0, 1, 8).expand(1, 3, 8, 8)
    monochrome = torch.full((4000, 3, 2, 2), 0.5)
    light = data.article_transforms(monochrome, 2)[:, 0, 0, 0]
    assert 0.20 < (light - 0.5).abs().lt(1e-4).float().mean() < 0.30, "contrast leaves grey as it is"
    assert light.min() > 0.5 - 0.125
    assert light.max() < 0.5 + 0.125, "0.6 with a contrast of 1.25"
    many = data.article_transforms(ramp.repeat(400, 1, 1, 1), 16)
    plain = data.resized(ramp, 16, "article")[0]
    assert plain[0, 0, 0] == 0
    assert plain[0, 0, -1] == 1
    unmoved = (many - plain).abs().amax((1, 2, 3)) < 1e-3
    assert unmoved.float().mean() < 0.03, "0.5 * 0.25 ** 5"
    straight = torch.linspace(-1, 1, 5)
    still = data.warp(straight.view(1, 1, 5), straight.view(1, 5, 1), torch.zeros(1, 4, 1, 1))
    torch.testing.assert_close(still[0][0], straight.expand(5, 5))
    corners = data.warp(
        torch.tensor([[[-1.1, 1.2]]]),
        torch.tensor([[[-1.3], [1.3]]]),
        torch.tensor([0.4, 0.3, 0.0, 0.1]).view(1, 4, 1, 1),
    )
    assert float(corners[0][0, 0, 0]) == pytest.approx(-1, abs=1e-5)
    assert float(corners[1][0, 0, 0]) == pytest.approx(-1, abs=1e-5)


@pytest.mark.parametrize("augment", [True, False])
def test_both_pipelines_of_the_article_normalise_by_cifar_10_and_leave_white_images_white(augment):
    """Padding by anything but reflection would be seen; the figures are fastai 1's `cifar_stats`."""
    white, labels = torch.full((8, 3, 32, 32), 255, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64)
    expected = torch.tensor([(1 - 0.491) / 0.247, (1 - 0.482) / 0.243, (1 - 0.447) / 0.261]).view(1, 3, 1, 1)
    trial = small_trial(RESNET, "resnet18", "fp32", {**SMALL, "recipe": "article", "image_size": "40"})
    ((on_the_device, _),) = data.device_loader(white, labels, trial, augment=augment)
    by_workers = torch.stack([image for image, _ in data.PilImages(white, labels, trial, augment)])
    for images in (on_the_device, by_workers):
        torch.testing.assert_close(images, expected.expand(8, 3, 40, 40), rtol=1e-4, atol=1e-4)


def test_a_run_compiles_its_network_where_it_was_asked_to(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: compiled.append(type(module).__name__))
    run_small(monkeypatch, mode="quick", compile="true", pipeline="device")
    run_small(monkeypatch, mode="quick", compile="false", pipeline="device")
    assert compiled == ["ResNet"]


@pytest.mark.e2e
@pytest.mark.parametrize("recipe", ["full", pytest.param("article", marks=pytest.mark.slow)])
def test_compiled_steps_are_still_proved(monkeypatch, recipe):
    """With a backend that runs the captured graph as it is: compiling a ResNet to machine code takes minutes."""
    compiled, original = [], torch.nn.Module.compile

    def capture(self, **options):
        compiled.append(type(self).__name__)
        original(self, backend="aot_eager", **options)

    monkeypatch.setattr(torch.nn.Module, "compile", capture)
    _, _, watch, _ = run_small(monkeypatch, mode="quick", compile="true", name="bf16", recipe=recipe, pipeline="device")
    assert len(compiled) == 1
    assert watch.check("bf16")


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        *((name, "full") for name in ("fp16", "fp16-master")),
        *(pytest.param(name, "article", marks=pytest.mark.e2e) for name in ("fp16", "fp16-master")),
        pytest.param("fp16-pure", "full", marks=pytest.mark.e2e),
    ],
)
def test_fp16_with_its_scaled_loss(monkeypatch, name, recipe):
    settings = {"recipe": recipe, "pipeline": "device", "loss_scale": "128"}
    _, clock, watch, _ = run_small(monkeypatch, mode="quick", name=name, **settings)
    assert "convolution float16" in watch.check(name)
    assert precision.check_weights(name, clock.notes.weights)
    assert (clock.notes.loss_scale, clock.notes.nonfinite_losses) == (128, 0)


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("suite", "data", "batch", "settings", "least"),
    [
        ("resnet", "cifar100", 128, {"image_size": 32, "epochs": 1, "train_images": 6400, "valid_images": 1000}, 0.02),
        ("cifar10", "cifar10", 250, {"epochs": 2, "train_images": 2000, "valid_images": 500}, 0.25),
    ],
)
def test_real_images_teach_something(cli, tmp_path, real_data, suite, data, batch, settings, least):
    model, code = {"resnet": ("resnet18", 0), "cifar10": ("speedrun", 4)}[suite]  # the goal of cifar10 is missed
    options = ("--models", model, "--precision", "bf16", "--full", "--batch", batch)
    row = rows_of_run(cli, tmp_path, suite, *options, "--data", real_data(data), code=code, **settings).iloc[0]
    assert row["accuracy"] > least
