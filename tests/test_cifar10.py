"""The cifar10 suite, small: every rung trains, its work is the published one, and its parts do what they say."""

import math
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from brief import brief
from gpubench.suites.cifar10 import data, networks, training
from gpubench.suites.cifar10.optimizers import Muon, compile_once, orthogonal
from gpubench.suites.cifar10.recipe import RECIPES, stage_at, stages_of
from small_trials import MIXED, run_trial, small_trial
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode
from waiting import Waits

from gpubench.suite import files
from gpubench.training import precision
from gpubench.training.clock.clock import Clock
from gpubench.training.flops import Work
from gpubench.training.precision import KINDS, mode_of

CIFAR10 = files.find("cifar10")
SMALL = {"train_images": "16", "valid_images": "8", "epochs": "1", "workers": "1"}


def trial_of(rung="tta", name="fp32", *, mode="full", batch=8, seed=1, **settings):
    return small_trial(CIFAR10, rung, name, {**SMALL, **settings}, mode=mode, batch=batch, seed=seed)


def run_small(rung, name="fp32", **options):
    return run_trial(CIFAR10, trial_of(rung, name, **options))


def objective_of(rung, name="fp32"):
    """A rung's network, and its loss."""
    return training.Objective(networks.network(RECIPES[rung]), RECIPES[rung], mode_of(name, "cpu"))


FEW = {(rung, MIXED) for rung in ("baseline", "gpu-preprocessing", "tta", "speedrun")}
MANY = {(rung, MIXED) for rung in CIFAR10.suite.models}
MANY |= {(rung, "fp32") for rung in ("resnet9", "ema", "no-duplicates", "speedrun")}


@pytest.mark.parametrize(
    ("rung", "name"),
    sorted(FEW)
    + [pytest.param(*case, marks=pytest.mark.e2e) for case in sorted(MANY - FEW)]
    + [pytest.param("speedrun", name, marks=pytest.mark.slow) for name in ("fp16", "fp16-master", "fp16-pure")],
)
def test_every_rung_trains_in_its_precision(rung, name):
    images = 4  # a CPU without fp16 convolutions takes seconds an image
    quality, clock, watch = run_small(rung, name, train_images=str(images), batch=images // 2)
    found = clock.summary()
    assert found["measured"]
    assert found["samples"] == images
    assert found["valid_seconds"] > 0
    assert 0 <= quality["accuracy"] <= 1
    assert 0 < quality["loss"] < float("inf")
    assert quality["success_rate"] in {0, 1}
    assert watch.check(name)
    phases = [lap.phase for lap in found["laps"]]
    assert {"warmup", "preprocess", "train", "valid"} <= set(phases)


def counted_flops(rung, edge=32, *, whitening=False):
    network = networks.network(RECIPES[rung]).to("meta")  # a CPU's product for 2 x 2 pixels has less to do
    if RECIPES[rung].network == "narrow":
        networks.whitening_layer(network).bias.requires_grad_(whitening)
    with FlopCounterMode(display=False) as counter:
        network(torch.randn(2, 3, edge, edge, device="meta")).sum().backward()
    return counter.get_total_flops() / 2


@pytest.mark.parametrize(("rung", "published"), [("baseline", 2.76e9), ("resnet9", 2.27e9)])
def test_flops_are_the_published_ones(rung, published):
    assert counted_flops(rung) == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize("rung", ["baseline", "no-duplicates", "batch-768", "resnet9", "gpu-preprocessing", "tta"])
def test_the_formula_says_what_torch_counts(rung):
    assert CIFAR10.suite.flops(rung, {}) == pytest.approx(counted_flops(rung), rel=1e-6)


@pytest.mark.parametrize("epochs", [0, 3])
def test_the_formula_of_speedrun_follows_the_sizes_and_the_number_of_its_images(epochs):
    recipe, settings, epochs = RECIPES["speedrun"], {"epochs": epochs}, epochs or RECIPES["speedrun"].epochs
    stages = [stage_at(recipe, epoch, epochs) for epoch in range(epochs)]
    work = sum(each.share * counted_flops("speedrun", each.edge, whitening=each.whitening) for each in stages)
    assert CIFAR10.suite.flops("speedrun", settings) == pytest.approx(
        work / sum(each.share for each in stages), rel=1e-6
    )


def test_each_rung_is_the_one_before_with_a_change():
    assert (len(RECIPES), list(RECIPES).index("tta")) == (23, 16), "17 of the posts, 6 records"
    for (_, before), (name, after) in pairwise(RECIPES.items()):
        changed = {f.name for f in fields(after) if getattr(before, f.name) != getattr(after, f.name)}
        assert changed, name
    published = {
        "baseline": (35, 128), "batch-512": (35, 512), "cutout": (30, 512), "batch-768": (30, 768),
        "resnet9": (24, 512), "label-smoothing": (23, 512), "celu": (20, 512), "ghost-bn": (18, 512),
        "frozen-bn-scale": (17, 512), "whitening": (14, 512), "ema": (13, 512), "tta": (10, 512),
    }  # fmt: skip
    assert {name: (RECIPES[name].epochs, RECIPES[name].batch) for name in published} == published
    for name, recipe in RECIPES.items():
        assert recipe.lr[-1][0] == recipe.epochs, name
        assert CIFAR10.suite.recipe_batch(name, {}, "fp32") == recipe.batch


def test_what_each_step_changed_is_what_its_source_says():
    """D. Page's posts and notebooks (cifar10-fast at f79e8b89): the value from this rung on."""
    steps = {
        "cutout": {"baseline": 0, "cutout": 8, "whitening": 5, "tta": 0},
        "norm_start": {"baseline": "uniform", "resnet9": "one"},
        "part_batch": {"baseline": True, "gpu-preprocessing": False},
        "pool_first": {"baseline": False, "gpu-preprocessing": True},
        "label_smoothing": {"baseline": 0, "label-smoothing": 0.2},
        "celu": {"baseline": 0, "celu": 0.075, "frozen-bn-scale": 0.3},
        "ghosts": {"baseline": 1, "ghost-bn": 16},
        "norm_scale": {"baseline": True, "frozen-bn-scale": False},
        "bias_lr": {"baseline": 1, "frozen-bn-scale": 64},
        "logit_scale": {"baseline": 1, "resnet9": 1 / 8, "frozen-bn-scale": 1 / 16},
        "whiten": {"baseline": 0, "whitening": 3},
        "whiten_images": {"baseline": 10_000},
        "ema": {"baseline": 0, "ema": 0.99},
        "views": {"baseline": 1, "tta": 2},
        "momentum": {"baseline": 0.9},
        "weight_decay": {"baseline": 5e-4},
    }
    peaks = {
        "baseline": 0.105, "no-duplicates": 0.1, "batch-512": 0.44, "cutout": 0.4,
        "batch-768": 0.6, "resnet9": 0.4, "ghost-bn": 0.6,
        "whitening": 1.0,
    }  # fmt: skip
    now, rate = {name: values["baseline"] for name, values in steps.items()}, 0.0
    for rung, recipe in RECIPES.items():
        if rung == "airbench94":
            break  # the rungs from here on have other sources
        now |= {name: values[rung] for name, values in steps.items() if rung in values}
        rate = peaks.get(rung, rate)
        assert {name: getattr(recipe, name) for name in now} == now, rung
        assert max(lr for _, lr in recipe.lr) == rate, rung


def run_of(rung, name="fp32", **options):
    """A Run with nothing done yet."""
    trial = trial_of(rung, name, **options)
    objective = objective_of(rung, name)
    networks.prepared(objective.model, objective.recipe, objective.mode, torch.device("cpu"))
    return training.Run(objective, trial, Clock(brief("full")))


def test_a_step_has_the_rate_of_its_moment_and_each_group_its_share():
    run = run_of("whitening", epochs="0")
    run.total_steps = 4 * run.epochs
    batch = torch.randn(4, 3, 32, 32), torch.randint(10, (4,))
    for _ in range(3):
        run.step(batch)
    (sgd,) = run.optimizers
    assert sgd.defaults["nesterov"]
    rate = training.at(run.recipe.lr, 3 / 4)
    biases, others = sorted(sgd.param_groups, key=lambda group: -group["factor"])
    assert (biases["lr"], biases["weight_decay"]) == pytest.approx((64 * rate, 5e-4 / 64))
    assert (others["lr"], others["weight_decay"], others["momentum"]) == pytest.approx((rate, 5e-4, 0.9))
    scales = [module.weight for module in run.model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert all(bool((scale == 1).all()) for scale in scales)


def test_the_average_moves_by_what_its_decay_leaves():
    slow, fast = torch.nn.BatchNorm2d(2), torch.nn.BatchNorm2d(2)
    with torch.no_grad():
        fast.weight.fill_(3)
        fast.running_mean.fill_(1)
    training.follow(slow, fast, 0.9)
    assert slow.weight.tolist() == pytest.approx([1.2, 1.2])
    assert slow.running_mean.tolist() == pytest.approx([0.1, 0.1])
    run = run_of("ema")
    assert run.average is not run.model
    batch = torch.randn(4, 3, 32, 32), torch.randint(10, (4,))
    run.average.load_state_dict(run.model.state_dict())
    before = run.average.head.weight.clone()
    for step in range(1, 6):
        run.step(batch)
        assert torch.equal(run.average.head.weight, before) is (step < 5)
    wanted = before.lerp(run.model.head.weight, 1 - 0.99**5)
    assert torch.allclose(run.average.head.weight, wanted, atol=1e-6)


def test_the_whitening_bias_trains_for_its_epochs(monkeypatch):
    trained, step = [], training.Run.step
    layer = networks.whitening_layer

    def watching(run, batch):
        trained.append(layer(run.model).bias.requires_grad)
        return step(run, batch)

    monkeypatch.setattr(training.Run, "step", watching)
    run_small("airbench94", epochs="5", train_images="4", batch=4)
    _, _, *epochs = trained[: 2 + 5]  # the warm-up has one step of each kind
    assert epochs == [True] + [False] * 4


def test_runs_of_one_process_begin_anew_and_draw_anew(monkeypatch):
    begun = []

    def whole(run, images):
        batches, _ = run.prepare(images)
        labels = torch.cat([labels for _, labels, *_ in batches])
        begun.append((run.model.head.weight.detach().clone(), labels.tolist()))
        run.step(next(iter(batches)))
        return {"accuracy": 0.5, "loss": 1.0}

    monkeypatch.setattr(training.Run, "whole", whole)
    run_small("speedrun", runs_per_process="2", train_images="64", batch=32)
    (weights, order), (others, another) = begun
    torch.manual_seed(1001)
    assert torch.equal(others, networks.network(RECIPES["speedrun"]).head.weight)
    assert not torch.equal(weights, others)
    assert order != another


def test_the_first_steps_train_a_last_smaller_batch_and_the_later_ones_do_not():
    for rung, many in (("resnet9", 3), ("gpu-preprocessing", 2)):
        trial = trial_of(rung, train_images="20")
        batches, _ = data.pipelines(data.load_images(trial), RECIPES[rung], trial, torch.float32)
        assert len(batches) == len(list(batches)) == many


def test_validation_between_epochs_and_warm_up_do_not_count(monkeypatch):
    _, clock, _ = run_small("tta", epochs="3", validate="true", train_images="4", valid_images="2", batch=4)
    found = clock.summary()
    laps = [lap for lap in found["laps"] if lap.kind != "resident"]
    between = [lap for lap in laps if lap.phase == "valid" and 0 <= lap.epoch < 2]
    assert sum(lap.samples for lap in between) == 2 * 2
    last = [lap for lap in laps if lap.phase == "valid" and lap not in between]
    assert found["valid_seconds"] == pytest.approx(sum(lap.seconds for lap in last))
    counted = [lap for lap in laps if lap.phase in {"preprocess", "train"}]
    assert found["seconds"] >= found["valid_seconds"] + sum(lap.seconds for lap in counted) - 1e-6
    monkeypatch.setattr(data, "TEST_BATCH", 1)
    run = training.Run(objective_of("tta"), trial_of(), Clock(brief("quick")))
    _, tests = run.prepare(data.load_images(run.trial))
    monkeypatch.setattr(run, "logits", lambda images, views: torch.zeros(len(images), 10))
    assert run.evaluate(tests)["loss"] == pytest.approx(math.log(10)), "of the images that a sample evaluates"


def test_several_runs_are_one_trial_with_the_share_that_reached_the_goal(monkeypatch):
    accuracies = iter([0.95, 0.93, 0.94])
    monkeypatch.setattr(training.Run, "whole", lambda self, images: {"accuracy": next(accuracies), "loss": 1.0})
    quality, _, _ = run_small("speedrun", runs_per_process="3")
    assert quality == pytest.approx({"accuracy": 0.94, "loss": 1.0, "success_rate": 2 / 3})


@pytest.mark.e2e
def test_a_compiled_run_compiles_nothing_after_its_warm_up(monkeypatch):
    for module in (data, training):
        monkeypatch.setattr(module, "TEST_BATCH", 8)
    compiled, whole = torch.nn.Module.compile, training.Run.whole
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **how: compiled(self, backend="eager", **how))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))

    def frozen(run, images):
        with torch.compiler.set_stance("fail_on_recompile"):
            return whole(run, images)

    monkeypatch.setattr(training.Run, "whole", frozen)
    settings = {"train_images": "24", "valid_images": "16", "epochs": "8", "runs_per_process": "2"}
    quality, _, _ = run_small("speedrun", MIXED, compile="true", **settings)
    torch.compiler.reset()
    compile_once.cache_clear()
    assert quality["loss"] > 0


def test_a_step_starts_fewer_calls_than_it_did_optimizers_and_batch_included(monkeypatch):
    """Of the fourth step of the last epoch, taking its batch included. Each call is one for a card's host to start."""
    monkeypatch.setattr(networks.SmallConv, "most_pixels_in_a_row", 0)  # as on a card
    run = run_of("speedrun", MIXED, batch=2, train_images="20", valid_images="2", epochs="0")
    batches, _ = run.prepare(data.load_images(run.trial))
    run.begin(batches, run.epochs - 1)
    steps = iter(batches)
    for _ in range(3):
        run.step(next(steps))
    with Work() as work:
        run.step(next(steps))
    assert 100 < work.calls < 160


@pytest.mark.parametrize(("rung", "edge"), [("whitening", 3), ("speedrun", 2)])
def test_whitened_patches_have_unit_covariance(rung, edge):
    network = networks.network(RECIPES[rung])
    x = torch.randn(200, 3, 32, 32)
    x = x + x.mean(1, keepdim=True) * 2  # channels that go together
    layer = networks.whitening_layer(network)
    networks.whiten(layer, x, edge)
    with torch.no_grad():
        out = torch.nn.functional.conv2d(x, layer.weight)[:, : 3 * edge**2]
    flat = out.permute(0, 2, 3, 1).flatten(0, 2)
    assert torch.allclose(flat.T @ flat / len(flat), torch.eye(3 * edge**2), atol=0.05)


def test_orthogonal_keeps_directions_and_evens_out_their_lengths():
    u, _, v = torch.linalg.svd(torch.randn(2, 32, 72), full_matrices=False)
    lengths = torch.linspace(1, 3, 32)
    given = u @ torch.diag(lengths) @ v
    found = torch.linalg.svdvals(orthogonal(given, steps=5))
    assert found.min() > 0.5
    assert found.max() < 1.4


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_muon_multiplies_in_the_precision_under_test(name):
    run = training.Run(objective_of("speedrun", name), trial_of(), Clock(brief("quick")))
    sgd, muon = run.optimizers
    assert muon.dtype == precision.KINDS[name].operand
    trained = [p for optimizer in run.optimizers for group in optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in trained} == {id(p) for p in run.model.parameters() if p.requires_grad}
    assert all(p.dim() != 4 for group in sgd.param_groups for p in group["params"])


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (5, 4), (1, 1)])
def test_a_small_convolution_is_the_librarys(shape):
    small = networks.SmallConv(4, 6).double()
    plain = torch.nn.Conv2d(4, 6, 3, padding=1, bias=False).double()
    plain.load_state_dict(small.state_dict())
    results = []
    for layer in (small, plain):
        x = torch.linspace(-1, 1, 2 * 4 * shape[0] * shape[1], dtype=torch.float64).view(2, 4, *shape).sin()
        y = layer(x.requires_grad_())
        (y * torch.arange(y.numel(), dtype=y.dtype).view(y.shape).cos()).sum().backward()
        results.append((y.detach(), x.grad, layer.weight.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_gradient_of_a_small_convolution_is_as_exact_as_the_librarys(dtype, layout):
    torch.manual_seed(1)
    x, out = (torch.randn(64, 32, 3, 3).to(dtype).to(memory_format=layout) for _ in range(2))
    layer = networks.SmallConv(32, 32).to(memory_format=layout)
    with torch.no_grad():
        layer.weight.copy_(layer.weight.to(dtype))

    def error(forward, expected=None):
        layer.weight.grad = None
        with torch.autocast("cpu", dtype, enabled=expected is not None):
            forward(x if expected is not None else x.float()).float().backward(out.float())
        assert layer.weight.grad.dtype == torch.float32
        return layer.weight.grad if expected is None else (layer.weight.grad - expected).norm() / expected.norm()

    convolution = partial(torch.nn.Conv2d.forward, layer)
    exact = error(convolution)
    assert error(layer, exact) < 1.1 * error(convolution, exact)


def test_ghost_batches_have_statistics_of_their_own():
    norm = networks.Norm(4, RECIPES["ghost-bn"])
    x = torch.randn(32, 4, 5, 5) * (1 + torch.arange(32).view(32, 1, 1, 1) // 2)
    groups = norm(x).reshape(2, 16 * 4, 5, 5)  # as the layer forms them: sample i is in ghost i modulo 16
    assert torch.allclose(groups.mean((0, 2, 3)), torch.zeros(64), atol=1e-5)
    assert torch.allclose(groups.var((0, 2, 3), correction=0), torch.ones(64), atol=1e-3)


def on_device(images, labels, recipe, trial, *, augment=True):
    place = {"device": torch.device("cpu"), "dtype": torch.float32}
    return data.OnDevice((images, labels), augment=augment, recipe=recipe, trial=trial, **place)


def test_a_drawn_crop_flip_and_hole_are_what_the_loader_gives():
    recipe = RECIPES["whitening"]
    images = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8)
    loader = on_device(images, torch.arange(6), recipe, trial_of("whitening", batch=4))
    drawn = torch.zeros(6, 5, dtype=torch.long)
    drawn[2], drawn[5] = torch.tensor([0, 8, 0, 0, 0]), torch.tensor([4, 4, 1, 27, 27])
    out, labels = data.cut_out(loader.images, loader.labels, torch.tensor([2, 5]), drawn, None, 32, recipe)
    padded = data.normalised(images, recipe.pad)
    first, second = padded[2, :, 0:32, 8:40].clone(), padded[5, :, 4:36, 4:36].flip(2)
    first[:, :5, :5] = 0
    second[:, 27:, 27:] = 0
    assert torch.equal(out, torch.stack([first, second]))
    assert labels.tolist() == [2, 5]


@pytest.mark.parametrize("rung", ["no-duplicates", "preprocess-once", "batched-rng", "cutout", "tta", "speedrun"])
def test_each_pipeline_gives_every_image_once_an_epoch(rung):
    trial = trial_of(rung, train_images="20", batch=10)
    images = data.load_images(trial)
    images.train[1].copy_(torch.arange(20))  # labels that name their image
    batches, tests = data.pipelines(images, RECIPES[rung], trial, torch.float32)
    for _ in range(2):
        seen = list(batches)
        assert sorted(torch.cat([labels for _, labels, *_ in seen]).tolist()) == list(range(20))
        edge = stage_at(RECIPES[rung], 0, 1).edge
        assert all(x.shape[1:] == (3, edge, edge) and x.dtype == torch.float32 for x, *_ in seen)
    assert sum(len(y) for _, y in tests) == 8


def test_an_image_is_flipped_in_every_other_epoch():
    recipe = RECIPES["airbench94"]
    trial = trial_of("airbench94", train_images="12", batch=12)
    x = torch.zeros(12, 3, 32, 32, dtype=torch.uint8)
    x[..., :16] = 255  # bright on the left
    loader = on_device(x, torch.arange(12), recipe, trial)
    sides = []
    for epoch in range(4):
        loader.begin(epoch)
        ((images, labels),) = list(loader)
        left = images[:, 0, :, :8].mean((1, 2)) > images[:, 0, :, -8:].mean((1, 2))
        sides.append(left[labels.argsort()])
    assert torch.equal(sides[0], ~sides[1])
    assert torch.equal(sides[0], sides[2])
    assert 0 < sides[0].sum() < 12


GREY = torch.full((12, 3, 32, 32), 128, dtype=torch.uint8)


def growing(images=GREY, **changes):
    """A rung whose images grow, and a loader of it with 12 images."""
    recipe = replace(RECIPES["speedrun"], edges=(20, 20, 24, 32), epochs=4, **changes)
    return recipe, on_device(images, torch.arange(12), recipe, trial_of(epochs="0", train_images="12", batch=12))


def test_images_grow_by_a_schedule_that_is_stretched_with_the_epochs():
    """Each is the whole picture made smaller: a ramp from top to bottom stays that ramp."""
    ramp = torch.arange(0, 256, 8, dtype=torch.uint8).view(1, 1, 32, 1).expand(12, 3, 32, 32)
    recipe, loader = growing(ramp, brightness=0.0, contrast=0.0, leave_out=0.0, pad=0)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.MEAN, data.STD))
    for epoch, edge in enumerate(recipe.edges):
        loader.begin(epoch)
        ((images, *_),) = list(loader)
        assert images.shape == (12, 3, edge, edge)
        rows = 8 * ((torch.arange(edge) + 0.5) * 32 / edge - 0.5)
        found = (images * std + mean)[:, :, 1:-1]  # at the rim there is less to take a mean of
        torch.testing.assert_close(found, rows[1:-1].view(-1, 1).expand_as(found), rtol=0, atol=0.5)
    recipe, _ = growing()
    assert [stage_at(recipe, epoch, 8).edge for epoch in range(8)] == [20, 20, 20, 20, 24, 24, 32, 32]
    assert [stage_at(recipe, epoch, 2).edge for epoch in range(2)] == [20, 24]
    assert stages_of(replace(recipe, leave_out=0.0), 8) == [0, 4, 6]
    assert stages_of(RECIPES["tta"], 10) == [0]


def test_an_epoch_leaves_out_some_of_the_images_that_are_easy_by_now():
    recipe, loader = growing(leave_out=0.25, leave_out_from=2)
    assert stages_of(recipe, 4) == [0, 2, 3]
    loader.losses.copy_(torch.arange(12.0).flip(0))  # the later, the easier
    seen = []
    for epoch in range(4):
        loader.begin(epoch)
        (images, labels, places), *more = list(loader)
        assert not more
        assert torch.equal(labels, places)
        assert len(images) == len(labels)
        seen.append(set(labels.tolist()))
    assert seen[0] == seen[1] == set(range(12))
    for each in seen[2:]:
        assert len(each) == 9
        assert set(range(6)) < each, "the harder half is whole"
    loader.begin(3)
    assert any(set(next(iter(loader))[1].tolist()) != seen[3] for _ in range(20)), "others each time"


def test_a_step_keeps_the_loss_of_each_image_and_nothing_that_a_cuda_graph_writes_again():
    run = run_of("speedrun", train_images="64", batch=32)
    run.recipe = replace(run.recipe, leave_out=0.25, leave_out_from=2)
    batches, _ = run.prepare(data.load_images(run.trial))
    first = next(iter(batches))
    loss = run.step(first)
    assert run.losses.isfinite().nonzero().flatten().tolist() == sorted(first[2].tolist())
    assert run.losses[first[2]].mean() == pytest.approx(float(loss))
    with torch.no_grad():
        expected = cross_entropy(run.objective.model(first[0]), first[1], label_smoothing=0.09, reduction="none")
    run.step(first)
    torch.testing.assert_close(run.losses[first[2]], expected, rtol=1e-4, atol=1e-4)
    run = run_of("speedrun", train_images="64", batch=32)
    batches, _ = run.prepare(data.load_images(run.trial))
    answers = []
    run.objective.register_forward_hook(lambda module, inputs, found: answers.append(found))
    assert run.step(next(iter(batches))).data_ptr() != answers[0][0].data_ptr()
    assert run.losses.untyped_storage().data_ptr() != answers[0][1].untyped_storage().data_ptr()
    answer = torch.randn(12, 10)
    run.average = lambda x: answer
    for views in (1, 6):
        logits = run.logits(torch.zeros(12 // views, 3, 32, 32), views)
        kept = logits.clone()
        answer.add_(1)
        assert torch.equal(logits, kept)


def test_each_image_has_a_light_of_its_own_and_a_new_one_in_each_epoch():
    _, loader = growing(brightness=0.5, contrast=0.0)
    plain = float(data.normalised(torch.full((1, 3, 1, 1), 128, dtype=torch.uint8), 0)[0, 0])
    seen = torch.stack([next(iter(loader))[0][:, 0].flatten(1) for _ in range(40)])
    assert torch.allclose(seen.amax(2), seen.amin(2), atol=1e-5), "one light for a whole image"
    light = seen[..., 0] - plain
    assert light.unique().numel() > 400
    assert 0.45 < light.max() <= 0.5 + 1e-6
    assert -0.5 - 1e-6 <= light.min() < -0.45
    _, loader = growing(brightness=0.0, contrast=0.25)
    times = torch.cat([next(iter(loader))[0][:, 0, 0, 0] for _ in range(40)]) / plain
    assert 1.2 < times.max() <= 1.25 + 1e-6
    assert 0.75 - 1e-6 <= times.min() < 0.8


def test_the_least_certain_images_get_another_look():
    logits = torch.tensor([[9.0, 0.0], [1.0, 0.9], [0.0, 5.0], [0.1, 0.0]])
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    tests = on_device(images, torch.arange(4), RECIPES["speedrun"], trial_of("speedrun"), augment=False)
    again = data.Doubtful(tests, [(logits, torch.arange(4))], 0.5)
    ((_, labels, before),) = list(again)
    assert sorted(labels.tolist()) == [1, 3]
    assert torch.equal(before, logits[labels])
    assert len(data.Doubtful(tests, [(logits, torch.arange(4))], 0.2)) == 1


def test_muon_takes_all_filter_banks_at_once():
    """A card's host starts each call; 118 of them, four chains of products, took longer than the products."""
    model = networks.network(RECIPES["speedrun"]).to(memory_format=torch.channels_last)
    filters = [weight for weight in model.parameters() if weight.dim() == 4 and weight.requires_grad]
    for weight in filters:
        weight.grad = torch.randn_like(weight)
    muon = Muon(filters, 0.6, torch.float32)
    by_hand = []
    for weight in filters:  # alone, by the formula; momentum begins at nothing
        matrix = weight.detach() * (len(weight) ** 0.5 / weight.detach().norm())
        by_hand.append(matrix - 0.1 * orthogonal(weight.grad.flatten(1)[None])[0].view_as(weight))
    muon.step()
    for weight, expected in zip(filters, by_hand, strict=True):
        torch.testing.assert_close(weight.detach(), expected, rtol=1e-4, atol=1e-5)
    with Work() as work:
        muon.step()
    assert work.calls <= 42


def test_muon_skips_an_overflow_by_itself_and_nobody_waits():
    """In a GradScaler that overflows once it does what it does without one, with that step left out."""
    plain, scaled = ([torch.nn.Parameter(weights.clone())] for weights in [torch.randn(8, 3, 3, 3)] * 2)
    optimizers = [Muon(each, 0.6, torch.float32) for each in (plain, scaled)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    scaler.scale(torch.ones(()))
    with Waits() as waits:
        for step in range(4):
            gradient = torch.randn(8, 3, 3, 3, generator=torch.Generator().manual_seed(step))
            plain[0].grad, scaled[0].grad = gradient, gradient * 2.0 ** (10 if step < 2 else 9)
            if step == 1:
                scaled[0].grad[0] = float("inf")
            else:
                optimizers[0].step()
            scaler.step(optimizers[1])
            scaler.update()
    assert not waits.seen
    torch.testing.assert_close(scaled[0], plain[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "fp16-master", "fp16-pure"])
def test_batchnorm_in_fp32_is_a_change_of_its_weights_and_of_no_operation(name, training):
    """Else the rung would gain or lose by what we write around a norm."""
    calls, dtypes = [], []
    mode = mode_of(name, "cpu")
    for rung in ("batch-512", "bn-fp32"):
        recipe = RECIPES[rung]
        norm = networks.prepared(torch.nn.Sequential(networks.Norm(4, recipe)), recipe, mode, torch.device("cpu"))
        x = torch.randn(2, 4, 3, 3).to(KINDS[name].operand)
        with Work() as work, mode.autocast():
            y = norm.train(training)(x)
        assert y.dtype == x.dtype
        calls.append(work.calls)
        dtypes.append(norm[0].weight.dtype)
    assert calls[0] == calls[1]
    before = torch.float16 if name == "fp16-pure" else torch.float32
    assert dtypes == [before, torch.float32]


@pytest.mark.parametrize(("rung", "place"), [("baseline", "cpu"), ("batch-512", "cpu"), ("speedrun", "meta")])
def test_images_are_read_to_where_the_rung_prepares_them(rung, place):
    """Else 185 MB would go from pageable memory to the card in the timed part, which other records do not time."""
    trial = trial_of(rung)
    images = data.load_images(replace(trial, case=replace(trial.case, device="meta")))
    assert {tensor.device.type for part in (images.train, images.test) for tensor in part} == {place}
