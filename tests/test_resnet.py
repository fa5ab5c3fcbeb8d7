"""The resnet suite, small: it trains through fastai's Learner, in every recipe, pipeline and precision."""

import json

import pytest
import torch
from brief import brief
from gpubench.suites.resnet import data

from gpubench.suite import files
from gpubench.suite.trial import Case, Trial
from gpubench.training import operands, precision
from gpubench.training.clock.clock import Clock

RESNET = files.find("resnet")
SMALL = {"image_size": "32", "train_images": "32", "valid_images": "16", "epochs": "1", "workers": "1"}


def run_small(monkeypatch, *, mode="full", model="resnet18", name="fp32", batch=8, **settings):
    """One trial inside this process; returns (quality, clock, watch, calls of fit_one_cycle)."""
    from fastai.callback import schedule  # noqa: F401  (adds fit_one_cycle)
    from fastai.learner import Learner

    calls = []
    original = Learner.fit_one_cycle

    def spy(self, epochs, lr, **options):
        calls.append((epochs, lr))
        return original(self, epochs, lr, **options)

    monkeypatch.setattr(Learner, "fit_one_cycle", spy)
    case = Case(
        suite="resnet", suite_version=1, suite_digest="", suite_path=str(RESNET.path), model=model,
        precision=name, device="cpu", params=RESNET.resolve_params({**SMALL, **settings}), batch_policy="fixed",
        batch_size=batch, mode=mode, data="synthetic", weights="random",
    )  # fmt: skip
    precision.set_flags(name, reduced_reduction=False, cudnn_benchmark=False)
    watch = operands.OperandWatch()
    clock = Clock(brief(mode), watch=lambda: [watch])
    quality = RESNET.suite.train(Trial(case, 0, 1), clock)
    return quality, clock, watch, calls


@pytest.mark.parametrize(
    ("recipe", "pipeline", "name"),
    [
        ("full", "device", "bf16"),
        ("full", "workers", "fp32"),
        ("article", "device", "fp32"),
        pytest.param("article", "workers", "bf16", marks=pytest.mark.e2e),
        pytest.param("full", "device", "fp32", marks=pytest.mark.slow),
        pytest.param("full", "workers", "bf16", marks=pytest.mark.slow),
        pytest.param("article", "device", "bf16", marks=pytest.mark.slow),
        pytest.param("article", "workers", "fp32", marks=pytest.mark.slow),
    ],
)
def test_it_trains_through_fit_one_cycle(monkeypatch, name, recipe, pipeline):
    quality, clock, watch, calls = run_small(monkeypatch, name=name, recipe=recipe, pipeline=pipeline)
    assert calls == [(1, 3e-3)]
    summary = clock.summary()
    assert summary["measured"]
    assert summary["samples"] == 32
    assert summary["valid_seconds"] > 0
    assert 0 <= quality["accuracy"] <= 1
    assert quality["loss"] > 0
    assert watch.check(name)
    assert clock.proved


@pytest.mark.parametrize(
    ("recipe", "pipeline"),
    [("full", "workers"), ("full", "device"), pytest.param("article", "workers", marks=pytest.mark.e2e)],
)
def test_it_trains_where_it_was_told_to(monkeypatch, recipe, pipeline):
    """fastai has a default device, the card of a machine that has one: a trial on the CPU must not go there."""
    for module in ("fastai.callback.core", "fastai.learner"):
        monkeypatch.setattr(f"{module}.default_device", lambda: torch.device("meta"))
    _, _, watch, _ = run_small(monkeypatch, mode="quick", recipe=recipe, pipeline=pipeline)
    assert set(watch.devices) == {"cpu"}


def test_every_epoch_of_a_full_run_is_trained(monkeypatch):
    _, clock, _, _ = run_small(monkeypatch, epochs="3", batch=16)
    summary = clock.summary()
    assert summary["samples"] == 3 * 32
    assert {lap.epoch for lap in summary["laps"] if lap.kind != "resident"} == {0, 1, 2}


def test_a_sampled_run_stops_after_two_epochs_and_claims_no_accuracy(monkeypatch):
    quality, clock, _, _ = run_small(monkeypatch, mode="sampled", epochs="30")
    assert quality == {}
    assert clock.summary()["epochs"] == 30
    assert not clock.summary()["measured"]


def test_quick(monkeypatch):
    _, clock, _, _ = run_small(monkeypatch, mode="quick", epochs="30", train_images="0")
    laps = [(lap.phase, lap.kind) for lap in clock.summary()["laps"]]
    assert laps.count(("train", "timed")) <= 3
    assert ("valid", "timed") in laps


def learner_of(monkeypatch, **settings):
    """The Learner of one small run."""
    from fastai.learner import Learner

    learners = []
    original = Learner.__init__

    def keep(self, *args, **kwargs):
        learners.append(self)
        original(self, *args, **kwargs)

    monkeypatch.setattr(Learner, "__init__", keep)
    run_small(monkeypatch, pipeline="device", **settings)
    return learners[0]


@pytest.mark.parametrize(("recipe", "second"), [("article", 0.99), ("full", 0.999)])
def test_the_articles_adam_has_the_betas_of_fastai_v1(monkeypatch, recipe, second):
    optimizer = learner_of(monkeypatch, recipe=recipe).opt.opt
    assert {group["betas"][1] for group in optimizer.param_groups} == {second}


def test_the_articles_body_is_frozen_but_for_its_batchnorm(monkeypatch):
    learner = learner_of(monkeypatch, recipe="article")
    body, head = learner.model[0], learner.model[1]
    trains = {name for name, p in body.named_parameters() if p.requires_grad}
    norms = {
        f"{name}.{kind}"
        for name, module in body.named_modules()
        if isinstance(module, torch.nn.BatchNorm2d)
        for kind in ("weight", "bias")
    }
    assert trains == norms
    assert all(p.requires_grad for p in head.parameters())


def test_a_lone_last_sample_is_left_out_and_its_time_scaled(monkeypatch):
    _, clock, _, _ = run_small(monkeypatch, train_images="33")
    summary = clock.summary()
    assert summary["samples"] == 32
    assert not summary["measured"]


def test_the_pooled_split_of_the_article():
    x = torch.arange(60_000)
    case = Case(
        suite="resnet", suite_version=1, suite_digest="", suite_path="", model="resnet18", precision="fp32",
        device="cpu", params=RESNET.resolve_params({"recipe": "article"}), batch_policy="fixed", batch_size=16,
        mode="full", data="cifar100",
    )  # fmt: skip
    split = data.split
    (kept, _), (held_out, _) = split((x[:50_000], x[:50_000], x[50_000:], x[50_000:]), Trial(case, 0, 1))
    assert (len(kept), len(held_out)) == (48_000, 12_000)
    assert len(set(kept.tolist()) | set(held_out.tolist())) == 60_000


def test_cropping_and_flipping_keep_shape_and_type():
    crop_and_flip = data.crop_and_flip
    images = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    out = crop_and_flip(images, torch.Generator().manual_seed(0))
    assert out.shape == images.shape
    assert out.dtype == torch.uint8


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


@pytest.mark.parametrize("recipe", ["full", pytest.param("article", marks=pytest.mark.e2e)])
def test_fp16_with_its_scaled_loss(monkeypatch, recipe):
    _, _, watch, _ = run_small(monkeypatch, mode="quick", name="fp16", recipe=recipe, pipeline="device", batch=2)
    assert "float16" in watch.check("fp16")


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("fp16-master", "full"),
        *(pytest.param(*case, marks=pytest.mark.e2e) for case in (("fp16-master", "article"), ("fp16-pure", "full"))),
    ],
)
def test_fp16_weights(monkeypatch, name, recipe):
    _, clock, watch, _ = run_small(
        monkeypatch, mode="quick", name=name, recipe=recipe, pipeline="device", loss_scale="128"
    )
    assert "convolution float16" in watch.check(name)
    assert precision.check_weights(name, clock.notes.weights)
    assert (clock.notes.loss_scale, clock.notes.nonfinite_losses) == (128, 0)


@pytest.mark.e2e
def test_a_trial_end_to_end_on_synthetic_data(cli, tmp_path):
    done = cli(
        "run", "--suite", "resnet", "--models", "resnet18", "--precision", "both", "--device", "cpu", "--quick",
        "--synthetic", "--batch", "8", "--set", "image_size=32", "--out", "a.csv",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    from gpubench.rows.read import load

    frame = load([tmp_path / "a.csv"]).frame
    assert list(frame["status"]) == ["ok", "ok"]
    assert set(frame["precision"]) == {"fp32", "bf16"}
    assert set(frame["data"]) == {"synthetic"}
    assert frame["accuracy"].isna().all()
    assert frame["precision_proof"].str.contains("operands").all()
    assert all(json.loads(laps) for laps in frame["laps"])


@pytest.mark.realdata
def test_real_images_teach_something(cli, tmp_path, real_data):
    done = cli(
        "run", "--suite", "resnet", "--models", "resnet18", "--precision", "fp32", "--device", "cpu", "--full",
        "--batch", "128", "--set", "image_size=32", "--set", "epochs=1", "--set", "train_images=6400",
        "--set", "valid_images=1000", "--data", real_data, "--out", "a.csv",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    from gpubench.rows.read import load

    assert load([tmp_path / "a.csv"]).frame["accuracy"][0] > 0.02  # chance is 0.01
