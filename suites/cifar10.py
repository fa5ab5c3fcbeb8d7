"""CIFAR-10 to 94%: what each step to a record run gains.

A model here is a rung of a ladder: the recipe of the rung before it and one change. The ladder is "How to Train Your
ResNet" (D. Page, Myrtle.ai 2018 and 2019; davidcpage/cifar10-fast). It begins with the DAWNBench entry of B. Johnson
(bkj/basenet). `speedrun` adds what later records found (K. Jordan, arXiv 2404.00498 and KellerJordan/cifar10-airbench;
hiverge/cifar10-speedrun).

Timed, by the rules of DAWNBench: preparing the data, the training, and the evaluation after it. Not timed: reading the
dataset, building the network, a warm-up on random labels (in laps of its own), and any evaluation between epochs.
Goal: 94% of the 10,000 test images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpubench import Param, ParamValue, Suite

if TYPE_CHECKING:  # `gpubench list` reads this file without torch
    import torch

    from gpubench import Clock, Trial
    from gpubench.training import Mode

CLASSES = 10
TRAIN_IMAGES, TEST_IMAGES = 50_000, 10_000
SIZE = 32
MEAN, STD = (125.31, 122.95, 113.87), (62.99, 62.09, 66.70)
"""Of the training images' bytes, per channel."""
TEST_BATCH = 1000
GOAL = 0.94

Knots = tuple[tuple[float, float], ...]


# The ladder


@dataclass(frozen=True)
class Recipe:
    """Everything that a rung may change. The defaults are the first rung."""

    network: str = "dawn"
    twice: bool = True
    """Norm and ReLU two times in a row after the first convolution."""
    epochs: int = 35
    batch: int = 128
    lr: Knots = ((0, 0), (15, 0.1), (15, 0.105), (30, 0.005), (35, 0))
    """Learning rate for the mean loss at these epochs, straight lines between them."""
    pipeline: str = "per-sample"
    """per-sample: PIL images, transformed each time they are used, in `workers` processes, new ones each epoch;
    prepared: padded and normalised once, cropped one by one in one lasting process;
    drawn: random numbers for a whole epoch at once, cropped one by one in the training process;
    device: all of it on the device, a batch at a time."""
    pad: int = 4
    cutout: int = 0
    """Edge of the square set to zero, in pixels."""
    alternate: bool = False
    """Flip an image in every other epoch instead of at random."""
    narrow_norm: bool = True
    """Keep BatchNorm's weights and statistics in 16 bits where the precision has all of them so (fp16-pure, as the
    ladder's source); the other precisions have them in fp32 on every rung, and so nothing to change."""
    pool_first: bool = False
    """Max-pooling before norm and activation instead of after them."""
    activation: str = "relu"
    celu: float = 0.0
    """Alpha of the CELU activation."""
    ghosts: int = 1
    """Parts of a batch that BatchNorm takes for batches of their own."""
    norm_scale: bool = True
    """Train BatchNorm's scale."""
    norm_start: str = "uniform"
    """Where that scale begins: `uniform` in [0, 1], as in torch 0.4, with which the ladder began, or at `one`."""
    norm_momentum: float = 0.1
    logit_scale: float = 1.0
    label_smoothing: float = 0.0
    weight_decay: float = 5e-4
    momentum: float = 0.9
    bias_lr: float = 1.0
    """Learning rate of the biases, and 1 / their weight decay, as a multiple of the others'."""
    head_lr: float = 1.0
    """The same of the last layer."""
    muon: float = 0.0
    """Momentum of Muon, which trains the convolutions instead of SGD."""
    whiten: int = 0
    """Edge of the patches that a fixed first convolution whitens."""
    whiten_images: int = 10_000
    """How many of the first images those patches are taken from."""
    whiten_epochs: int = 0
    """Epochs for which that convolution's bias is trained."""
    ema: float = 0.0
    """Decay per step of the average of the weights that is evaluated."""
    views: int = 1
    """Views that an evaluated image is the mean of: 2 with its mirror image, 6 with shifts of both by a pixel."""
    doubtful: float = 1.0
    """Share of the images, the least certain ones, that get more than one view."""
    channels_last: bool = False
    part_batch: bool = True
    """Train a last batch that is smaller than the others."""


def peak(epochs: int, lr: float) -> Knots:
    """Up to `lr` in the first fifth of the epochs, then down to 0."""
    return ((0, 0), (epochs / 5, lr), (epochs, 0))


def ladder() -> dict[str, Recipe]:
    """The rungs in order; each line is what that step changes."""
    rungs = {"baseline": (now := Recipe())}
    rungs["no-duplicates"] = now = replace(now, twice=False, lr=((0, 0), (15, 0.1), (30, 0.005), (35, 0)))
    rungs["preprocess-once"] = now = replace(now, pipeline="prepared")
    rungs["batched-rng"] = now = replace(now, pipeline="drawn")
    rungs["batch-512"] = now = replace(now, batch=512, lr=((0, 0), (15, 0.44), (30, 0.005), (35, 0)))
    rungs["bn-fp32"] = now = replace(now, narrow_norm=False)
    rungs["cutout"] = now = replace(now, cutout=8, epochs=30, lr=((0, 0), (8, 0.4), (30, 0)))
    rungs["batch-768"] = now = replace(now, batch=768, lr=((0, 0), (8, 0.6), (30, 0)))
    rungs["resnet9"] = now = replace(
        now,
        network="resnet9",
        norm_start="one",
        logit_scale=1 / 8,
        batch=512,
        epochs=24,
        lr=((0, 0), (5, 0.4), (24, 0)),
    )
    rungs["gpu-preprocessing"] = now = replace(
        now, pipeline="device", part_batch=False, pool_first=True, epochs=25, lr=peak(25, 0.4)
    )
    rungs["label-smoothing"] = now = replace(now, label_smoothing=0.2, epochs=23, lr=peak(23, 0.4))
    rungs["celu"] = now = replace(now, activation="celu", celu=0.075, epochs=20, lr=peak(20, 0.4))
    rungs["ghost-bn"] = now = replace(now, ghosts=16, epochs=18, lr=peak(18, 0.6))
    rungs["frozen-bn-scale"] = now = replace(
        now, norm_scale=False, celu=0.3, logit_scale=1 / 16, bias_lr=64, epochs=17, lr=peak(17, 0.6)
    )
    rungs["whitening"] = now = replace(now, whiten=3, cutout=5, epochs=14, lr=peak(14, 1.0))
    rungs["ema"] = now = replace(now, ema=0.99, epochs=13, lr=((0, 0), (2.6, 1.0), (11, 0.1), (13, 0.1)))
    rungs["tta"] = now = replace(now, views=2, cutout=0, epochs=10, lr=((0, 0), (2, 1.0), (8, 0.1), (10, 0.1)))
    rungs["speedrun"] = replace(
        now, network="narrow", activation="gelu", norm_momentum=0.4, ghosts=1, logit_scale=1 / 256,
        muon=0.6, momentum=0.85, bias_lr=440, head_lr=5600, weight_decay=1 / 60, lr=((0, 0.24), (9, 0)),
        batch=2000, epochs=9, whiten=2, whiten_images=5000, whiten_epochs=1, ema=0, pad=2, alternate=True,
        views=6, doubtful=0.25, channels_last=True,
    )  # fmt: skip
    return rungs


RECIPES = ladder()


# A trial


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """One or more runs of a rung; returns accuracy (fraction) and loss on the test images, means over the runs."""
    import torch

    from gpubench.training import mode_of

    recipe, params = RECIPES[trial.case.model], trial.params
    device = torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    if device.type == "cpu":
        keep_memory()
    images = load_images(trial)
    model = prepared(network(recipe), recipe, mode, device)
    if params.compile:
        # As the record runs are compiled; a CPU has no launches to save. Each of the few batch sizes gets its kernels.
        model.compile(dynamic=False, **({"mode": "max-autotune"} if device.type == "cuda" else {}))
    warm_up(model, recipe, mode, trial, clock)
    found = []
    for number in clock.runs(max(1, params.runs_per_process)):
        torch.manual_seed(trial.seed + 1000 * number)
        model.load_state_dict(network(recipe).state_dict())
        run = Run(model, recipe, mode, replace(trial, seed=trial.seed + 1000 * number), clock)
        found.append(run.whole(images))
    model.train()
    for batch in clock.resident():
        run.step(batch)
    if not clock.complete:
        return {}
    quality = {name: sum(each[name] for each in found) / len(found) for name in ("accuracy", "loss")}
    reached = sum(each["accuracy"] >= GOAL for each in found)
    return {**quality, "success_rate": reached / len(found)}


def keep_memory() -> None:
    """Have glibc keep the memory that is freed, as torch does on CUDA.

    By default it gives large blocks back to the system, which then clears every page of every large tensor of every
    step: a fifth of a step of `speedrun` on two cores. Does nothing where there is no glibc.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        most_mapped_blocks, trim_threshold_bytes, padding_bytes = -4, -1, -2  # malloc.h
        mallopt(most_mapped_blocks, 0)
        mallopt(trim_threshold_bytes, 2**31 - 1)
        mallopt(padding_bytes, 2**28)


def warm_up(model: torch.nn.Module, recipe: Recipe, mode: Mode, trial: Trial, clock: Clock) -> None:
    """Prepare, train and evaluate a little noise, so that nothing in the run happens for the first time."""
    import torch

    many, batch = trial.params.train_images or TRAIN_IMAGES, trial.batch_size
    if trial.case.device == "cpu" and not trial.params.compile:
        some, tests = min(32, many), 8
    else:  # every shape of the run, the last and smaller batch included
        some, tests = min(many, batch) + (many % batch if many > batch else 0), 2 * TEST_BATCH
    noise = noise_images(some, tests, torch.Generator().manual_seed(trial.seed))
    run = Run(model, recipe, mode, trial, clock)
    batches, seen = run.prepare(noise)
    # CUDA graphs are recorded by the second step of a kind, and the third is the first to run like all others.
    times = 3 if trial.params.compile and run.device.type == "cuda" else 1
    for training in [True] * times + [False] * (times if recipe.whiten_epochs else 0):
        run.train_whitening(training)
        for each in clock.steps(batches, phase="warmup", counted=False):
            run.step(each)
    run.evaluate(seen, phase="warmup", counted=False)


class Run:
    """One training from fresh weights: its optimizers, its schedule, its average of the weights."""

    def __init__(self, model: Any, recipe: Recipe, mode: Mode, trial: Trial, clock: Clock) -> None:
        import torch

        from gpubench.training import Stepper
        from gpubench.training.precision import KINDS

        self.model, self.recipe, self.mode, self.trial, self.clock = model, recipe, mode, trial, clock
        self.device, self.dtype = torch.device(trial.case.device), KINDS[mode.name].operand
        self.epochs = trial.params.epochs or recipe.epochs
        self.train_whitening(True)
        self.optimizers = optimizers(model, recipe, self.dtype)
        # Weights of 16 bits need the sum of the losses, as in the sources: shares of a mean vanish in them.
        small = mode.name == "fp16-pure"
        scale = trial.params.loss_scale or (trial.batch_size if small else 0)
        self.stepper = Stepper(mode, model, self.optimizers, clock, loss_scale=scale)
        self.average = prepared(network(recipe), recipe, mode, self.device) if recipe.ema else model
        self.steps, self.steps_per_epoch = 0, 1

    def whole(self, images: Images) -> dict[str, float]:
        """Prepare the data, train all epochs, evaluate; returns accuracy and loss."""
        clock, recipe = self.clock, self.recipe
        for part in clock.steps([images], phase="preprocess", count=lambda part: len(part.train[0])):
            batches, tests = self.prepare(part)
        self.model.train()
        for epoch in clock.epochs(self.epochs):
            self.train_whitening(epoch * recipe.epochs < recipe.whiten_epochs * self.epochs)
            for batch in clock.steps(batches, phase="train"):
                self.step(batch)
            if self.trial.params.validate and epoch + 1 < self.epochs:
                found = self.evaluate(tests, counted=False)
                print(f"after {epoch + 1} epochs: {found['accuracy']:.2%}", flush=True)
        return self.evaluate(tests)

    def prepare(self, images: Images) -> tuple[Batches, Batches]:
        """Batches to train on and to evaluate; the filters of the whitening layer; where the average starts."""
        batches, tests = pipelines(images, self.recipe, self.trial, self.dtype)
        self.steps_per_epoch = len(batches)
        if self.recipe.whiten:
            sample = images.train[0][: self.recipe.whiten_images].to(self.device)
            whiten(whitening_layer(self.model), normalised(sample, 0), self.recipe.whiten)
        if self.recipe.ema:
            self.average.load_state_dict(self.model.state_dict())
        return batches, tests

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """One step of the optimizers, at the learning rate of the moment; returns the loss, a scalar."""
        from torch.nn.functional import cross_entropy

        self.steps += 1
        lr = at(self.recipe.lr, self.steps / self.steps_per_epoch * self.recipe.epochs / self.epochs)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * group["factor"]
        images, labels = batch
        with self.mode.autocast():
            logits = self.model(self.mode.input(images))
        loss = cross_entropy(logits.float(), labels, label_smoothing=self.recipe.label_smoothing)
        self.stepper.backward(loss)
        self.stepper.step()
        if self.recipe.ema and self.steps % 5 == 0:  # more often was no better in the source
            follow(self.average, self.model, self.recipe.ema**5)
        return loss.detach()

    def train_whitening(self, on: bool) -> None:
        """Train the bias of the whitening convolution, or save the backward pass that leads to it alone."""
        if self.recipe.whiten_epochs:
            whitening_layer(self.model).bias.requires_grad_(on)  # type: ignore[union-attr]

    def evaluate(self, tests: Batches, *, phase: str = "valid", counted: bool = True) -> dict[str, float]:
        """Accuracy and loss on the test images: all of them in one view, then the doubtful ones in several."""
        import torch
        from torch.nn.functional import cross_entropy

        recipe, many = self.recipe, tests.samples
        selective = recipe.views > 1 and recipe.doubtful < 1
        self.average.eval()
        right = torch.zeros((), device=self.device)
        loss, found = right.clone(), []
        for x, y in self.clock.steps(tests, phase=phase, samples=many, counted=counted):
            logits = self.logits(x, 1 if selective else recipe.views)
            right += (logits.argmax(1) == y).sum()
            loss += cross_entropy(logits, y, reduction="sum")
            found.append((logits, y))
        if selective:
            again = Doubtful(tests, found, recipe.doubtful)
            for x, y, before in self.clock.steps(again, phase=phase, samples=again.samples, counted=counted):
                logits = self.logits(x, recipe.views)
                right += (logits.argmax(1) == y).sum() - (before.argmax(1) == y).sum()
                loss += cross_entropy(logits, y, reduction="sum") - cross_entropy(before, y, reduction="sum")
        self.average.train()
        return {"accuracy": float(right) / many, "loss": float(loss) / many}

    def logits(self, images: torch.Tensor, views: int) -> torch.Tensor:
        """float32 logits of `images` (N, 3, 32, 32), a weighted mean over `views` of each."""
        import torch
        from torch.nn.functional import pad

        images = self.mode.input(images)
        seen = [(images, 1.0)]
        if views == 6:
            wide = pad(images, (1, 1, 1, 1), mode="reflect")
            shifted = (wide[..., :SIZE, :SIZE], wide[..., 2:, 2:])
            seen = [(images, 0.5), *((layout(each, self.recipe), 0.25) for each in shifted)]
        if views > 1:
            seen = [(each, weight / 2) for x, weight in seen for each in (x, x.flip(3))]
        with torch.no_grad(), self.mode.autocast():
            # Each product is a copy: the next call of a network compiled for CUDA overwrites what this one gave.
            parts = [weight * self.average(x).float() for x, weight in seen]
        return torch.stack(parts).sum(0)


def at(knots: Knots, epoch: float) -> float:
    """The value of a broken line at `epoch`."""
    for (start, low), (end, high) in pairwise(knots):
        if epoch <= end:
            return low + (high - low) * (epoch - start) / (end - start)
    return knots[-1][1]


def follow(average: torch.nn.Module, model: torch.nn.Module, decay: float) -> None:
    """Move the average of weights and statistics towards those of `model`."""
    for slow, fast in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
        if slow.is_floating_point():
            slow.lerp_(fast, 1 - decay)


# Networks


def network(recipe: Recipe) -> torch.nn.Sequential:
    """The rung's network with fresh weights, on the CPU."""
    return {"dawn": dawn, "resnet9": resnet9, "narrow": narrow}[recipe.network](recipe)


def dawn(recipe: Recipe) -> torch.nn.Sequential:
    """The pre-activation ResNet of 18 layers that won DAWNBench in April 2018, with 64 to 256 channels."""
    from torch import nn

    parts = layers()
    block = partial(parts.PreActivation, recipe)
    body = nn.Sequential(
        conv(3, 64),
        *([parts.Norm(64, recipe), nn.ReLU()] if recipe.twice else []),
        block(64, 64), block(64, 64),
        block(64, 128, stride=2), block(128, 128),
        block(128, 256, stride=2), block(256, 256),
        block(256, 256, stride=2), block(256, 256),
        parts.BothPools(),
    )  # fmt: skip
    return named(body=body, head=nn.Linear(512, CLASSES))


def resnet9(recipe: Recipe) -> torch.nn.Sequential:
    """Page's network: eight convolutions, two pairs of them with a residual connection around them."""
    from torch import nn

    parts = layers()
    filters, first = 3 * recipe.whiten**2, {}
    if recipe.whiten:
        first = {"whiten": conv(3, filters, kernel=recipe.whiten).requires_grad_(False)}
    body = nn.Sequential(
        conv_norm(filters, 64, recipe, kernel=1) if recipe.whiten else conv_norm(3, 64, recipe),
        conv_norm(64, 128, recipe, pool=True),
        parts.Residual(conv_norm(128, 128, recipe), conv_norm(128, 128, recipe)),
        conv_norm(128, 256, recipe, pool=True),
        conv_norm(256, 512, recipe, pool=True),
        parts.Residual(conv_norm(512, 512, recipe), conv_norm(512, 512, recipe)),
        nn.MaxPool2d(4),
        nn.Flatten(),
    )
    return named(**first, body=body, head=nn.Linear(512, CLASSES, bias=False), scale=parts.Scale(recipe.logit_scale))


def narrow(recipe: Recipe) -> torch.nn.Sequential:
    """The shape of airbench94: a whitening layer and six convolutions of 64 and 256 channels."""
    import torch
    from torch import nn

    filters = 2 * 3 * recipe.whiten**2
    whiten = nn.Conv2d(3, filters, recipe.whiten)
    whiten.weight.requires_grad_(False)
    body = nn.Sequential()
    for before, after, edge in ((filters, 64, 0), (64, 256, 0), (256, 256, 3)):
        start = [whiten, activation(recipe)] if before == filters else []
        body.extend([*start, conv_norm(before, after, recipe, pool=True), conv_norm(after, after, recipe, edge=edge)])
    body.extend([nn.MaxPool2d(3), nn.Flatten()])
    head = nn.Linear(256, CLASSES, bias=False)
    with torch.no_grad():
        whiten.bias.zero_()  # type: ignore[union-attr]
        head.weight.div_(head.weight.std())
        for module in body.modules():
            if isinstance(module, nn.Conv2d) and module is not whiten:  # pass the input on, as far as there is room
                nn.init.dirac_(module.weight[: module.in_channels])
    return named(body=body, head=head, scale=layers().Scale(recipe.logit_scale))


def whitening_layer(model: torch.nn.Module) -> torch.nn.Conv2d:
    """The convolution with the fixed filters: the first."""
    from torch import nn

    return next(module for module in model.modules() if isinstance(module, nn.Conv2d))


def named(**parts: torch.nn.Module) -> torch.nn.Sequential:
    """The parts in a row, each to be had by its name."""
    from collections import OrderedDict

    from torch import nn

    return nn.Sequential(OrderedDict(parts))


def place(model: torch.nn.Module, recipe: Recipe, device: torch.device) -> Any:
    """`model` on the device, in the layout that the recipe asks for."""
    import torch

    return model.to(device).to(memory_format=torch.channels_last if recipe.channels_last else torch.contiguous_format)


def prepared(model: torch.nn.Module, recipe: Recipe, mode: Mode, device: torch.device) -> Any:
    """`model` on the device with the weights of the precision, BatchNorm's in fp32 from that rung on."""
    from torch import nn

    model = mode.prepare(place(model, recipe, device))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and not recipe.narrow_norm:
            module.float()
    return model


def conv(before: int, after: int, *, kernel: int = 3, stride: int = 1) -> torch.nn.Conv2d:
    """A convolution without bias that keeps the image's size, or halves it."""
    from torch import nn

    return nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)


def conv_norm(
    before: int, after: int, recipe: Recipe, *, kernel: int = 3, pool: bool = False, edge: int = 0
) -> torch.nn.Module:
    """Convolution, norm, activation, and a pooling that halves the image, before or after those two.

    With an `edge`, the convolution is made for square images of so few pixels.
    """
    from torch import nn

    parts = layers()
    first = parts.SmallConv(before, after, edge) if edge else conv(before, after, kernel=kernel)
    pooling = [nn.MaxPool2d(2)] if pool else []
    tail = [parts.Norm(after, recipe), activation(recipe)]
    return nn.Sequential(first, *(pooling + tail if recipe.pool_first else tail + pooling))


def activation(recipe: Recipe) -> torch.nn.Module:
    """The rung's activation."""
    from torch import nn

    made: dict[str, Callable[[], nn.Module]] = {
        "relu": nn.ReLU, "celu": partial(nn.CELU, recipe.celu), "gelu": nn.GELU
    }  # fmt: skip
    return made[recipe.activation]()


@cache
def layers() -> Any:
    """The layers that torch lacks. Made when first needed, because this file is read without torch too."""
    import torch
    from torch import nn
    from torch.nn.functional import batch_norm, pad, relu

    class Norm(nn.BatchNorm2d):
        """BatchNorm that can take parts of a batch for batches, and keep its scale at 1."""

        def __init__(self, channels: int, recipe: Recipe) -> None:
            super().__init__(channels, momentum=recipe.norm_momentum)
            self.ghosts = recipe.ghosts
            self.weight.requires_grad_(recipe.norm_scale)
            if recipe.norm_start == "uniform":
                nn.init.uniform_(self.weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # A last, smaller batch may not divide.
            parts = math.gcd(self.ghosts, len(x)) if self.training else 1
            if parts == 1:
                return super().forward(x)
            assert self.running_mean is not None
            assert self.running_var is not None
            n, channels, height, width = x.shape
            mean, variance = (each.repeat(parts) for each in (self.running_mean, self.running_var))
            y = batch_norm(
                x.reshape(n // parts, channels * parts, height, width),
                mean,
                variance,
                self.weight.repeat(parts),
                self.bias.repeat(parts),
                self.training,
                self.momentum or 0.0,
                self.eps,
            )
            if self.training:
                self.running_mean.copy_(mean.view(parts, channels).mean(0))
                self.running_var.copy_(variance.view(parts, channels).mean(0))
            return y.view(n, channels, height, width)

    class SmallConv(nn.Conv2d):
        """A 3 x 3 convolution without bias, on a CPU as one product with a matrix of its weights.

        Each pixel of the result is a sum over all pixels of the image, most of which a 3 x 3 filter reaches if the
        image is 3 x 3 itself. The product has the operations that a convolution with padding has there, but none of
        a convolution's rearranging of the images, which is most of its time on a CPU where pixels are few and
        images some hundred. On a card it is the library's convolution.
        """

        places: torch.Tensor

        def __init__(self, before: int, after: int, edge: int) -> None:
            super().__init__(before, after, 3, padding=1, bias=False)
            at = torch.arange(edge)
            steps = at - at.view(-1, 1) + 1  # (to, from): where in the filter
            inside = (steps >= 0) & (steps < 3)
            places = 3 * steps[:, None, :, None] + steps[None, :, None, :]
            places = places.where(inside[:, None, :, None] & inside[None, :, None, :], torch.tensor(9))
            self.register_buffer("places", places.flatten(), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.device.type != "cpu":
                return super().forward(x)
            n, before, height, width = x.shape
            pixels, after = height * width, len(self.weight)
            # In the weights' own precision, in which their gradient then adds up; autocast narrows the product.
            filters = pad(self.weight.flatten(2), (0, 1)).permute(2, 0, 1)  # the tenth is nothing
            matrix = filters.index_select(0, self.places).view(pixels, pixels, after, before)
            matrix = matrix.transpose(1, 2).reshape(pixels * after, pixels * before)
            y = x.permute(0, 2, 3, 1).reshape(n, pixels * before) @ matrix.T
            return y.view(n, height, width, after).permute(0, 3, 1, 2)

    class PreActivation(nn.Module):
        """Norm and ReLU before each of two convolutions, and a shortcut from after the first ReLU."""

        def __init__(self, recipe: Recipe, before: int, after: int, *, stride: int = 1) -> None:
            super().__init__()
            self.norm1, self.conv1 = Norm(before, recipe), conv(before, after, stride=stride)
            self.norm2, self.conv2 = Norm(after, recipe), conv(after, after)
            self.shortcut = conv(before, after, kernel=1, stride=stride) if before != after or stride > 1 else None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = relu(self.norm1(x))
            shortcut = x if self.shortcut is None else self.shortcut(x)
            return shortcut + self.conv2(relu(self.norm2(self.conv1(x))))

    class Residual(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + super().forward(x)

    class BothPools(nn.Module):
        """The maximum and the mean of each channel, (N, 2 C)."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x.amax((2, 3)), x.mean((2, 3))], 1)

    class Scale(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    return SimpleNamespace(
        Norm=Norm, SmallConv=SmallConv, PreActivation=PreActivation, Residual=Residual, BothPools=BothPools, Scale=Scale
    )


def whiten(layer: torch.nn.Conv2d, images: torch.Tensor, edge: int) -> None:
    """Fix `layer` to the eigenvectors of the covariance of the images' patches, scaled to variance 1.

    After Page (3 x 3 patches) and T. Sweeney (tysam-code/hlb-CIFAR10: 2 x 2, and each with both signs).
    """
    import torch

    both_signs = layer.out_channels > 3 * edge**2
    patches = images.unfold(2, edge, 1).unfold(3, edge, 1).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(0, 2)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    least = 5e-4 if both_signs else 1e-2
    filters = (vectors / (values + least).sqrt()).T.reshape(-1, 3, edge, edge).flip(0)
    with torch.no_grad():
        layer.weight.copy_(torch.cat([filters, -filters]) if both_signs else filters)


# Optimizers


def optimizers(model: torch.nn.Module, recipe: Recipe, dtype: torch.dtype) -> list[torch.optim.Optimizer]:
    """SGD with Nesterov momentum, with groups of their own for biases and head, and Muon for convolutions.

    Each group's `factor` is its learning rate as a multiple of the schedule's.
    """
    import torch

    groups: dict[float, list[torch.nn.Parameter]] = {}
    filters = []
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        if recipe.muon and weight.dim() == 4:
            filters.append(weight)
            continue
        factor = recipe.bias_lr if name.endswith("bias") else recipe.head_lr if name == "head.weight" else 1.0
        groups.setdefault(factor, []).append(weight)
    sgd = torch.optim.SGD(
        [
            {"params": weights, "factor": factor, "weight_decay": recipe.weight_decay / factor}
            for factor, weights in groups.items()
        ],
        lr=0.1,  # set anew for each step
        momentum=recipe.momentum,
        nesterov=True,
        fused=True,
    )
    return [sgd, muon()(filters, recipe.muon, dtype)] if filters else [sgd]


@cache
def muon() -> Any:
    """The optimizer's class, made when first needed as the layers are."""
    import torch

    class Muon(torch.optim.Optimizer):
        """Moves each filter bank, a matrix (outputs, inputs), along the orthogonal part of its Nesterov momentum.

        Before that its norm is set to the root of its outputs, so that the learning rate is an angle.
        K. Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024). The products run in `dtype`,
        the precision under test; matrices of one shape run together.
        """

        # So a GradScaler leaves its scale, and whether a gradient overflowed, to the step; else it would wait for the
        # device in every one (pytorch/pytorch#80167).
        _step_supports_amp_scaling = True

        def __init__(self, weights: list[torch.nn.Parameter], momentum: float, dtype: torch.dtype) -> None:
            super().__init__(weights, {"momentum": momentum, "lr": 0.1, "factor": 1.0})
            self.dtype = dtype

        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
            overflowed = None if found is None else found > 0

            def unless_overflowed(value: Any, idle: float) -> Any:
                """`value` of a step that is taken, `idle` in one that is to change nothing; the host knows neither."""
                if overflowed is None:
                    return value
                if not isinstance(value, torch.Tensor):
                    value = torch.full_like(overflowed, value, dtype=torch.float32)
                return value.masked_fill(overflowed, idle)

            for group in self.param_groups:
                momentum, lr = unless_overflowed(group["momentum"], 1.0), unless_overflowed(group["lr"], 0.0)
                alike: dict[tuple[int, ...], list[tuple[torch.Tensor, torch.Tensor]]] = {}
                for weight in group["params"]:
                    if weight.grad is None:
                        continue
                    state = self.state[weight]
                    if not state:
                        state["momentum"] = torch.zeros_like(weight)
                    buffer = state["momentum"]
                    gradient = unless_overflowed(weight.grad if scale is None else weight.grad / scale, 0.0)
                    buffer.mul_(momentum).add_(gradient)
                    update = gradient.add(buffer, alpha=group["momentum"]).flatten(1)
                    alike.setdefault(tuple(update.shape), []).append((weight, update))
                for pairs in alike.values():
                    weights, updates = zip(*pairs, strict=True)
                    for weight, change in zip(weights, orthogonal(torch.stack(updates).to(self.dtype)), strict=True):
                        weight.mul_(unless_overflowed(math.sqrt(len(weight)) / weight.norm(), 1.0))
                        weight.sub_(change.view(weight.shape) * lr)

    return Muon


def orthogonal(x: torch.Tensor, steps: int = 3) -> torch.Tensor:
    """About U V^T of each matrix U S V^T in `x` (n, rows, columns): singular values come near 1, none exactly.

    Newton-Schulz iteration with K. Jordan's coefficients, which trade exactness for few steps.
    """
    import torch

    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


# Data


@dataclass(frozen=True)
class Images:
    """Images, uint8 (N, 3, 32, 32), and labels, int64 (N,), of training and test."""

    train: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]

    def to(self, device: torch.device) -> Images:
        """The same in the memory of `device`."""
        (x, y), (test_x, test_y) = self.train, self.test
        return Images((x.to(device), y.to(device)), (test_x.to(device), test_y.to(device)))


def load_images(trial: Trial) -> Images:
    """The dataset, or noise of its shape; the first images of each part where fewer are asked for.

    Reading ends where the rung takes them up: in device memory where it prepares them there, as the records do.
    """
    import torch

    on_device = RECIPES[trial.case.model].pipeline == "device"
    return read_images(trial).to(torch.device(trial.case.device if on_device else "cpu"))


def read_images(trial: Trial) -> Images:
    """The same in the host's memory."""
    import torch

    few, few_tests = trial.params.train_images or TRAIN_IMAGES, trial.params.valid_images or TEST_IMAGES
    if trial.synthetic:
        return noise_images(few, few_tests, torch.Generator().manual_seed(trial.seed))
    from gpubench.data.datasets import load_cifar

    train, test = load_cifar("cifar10", Path(trial.data_dir))
    return Images(
        (torch.from_numpy(train.images[:few]), torch.from_numpy(train.labels[:few])),
        (torch.from_numpy(test.images[:few_tests]), torch.from_numpy(test.labels[:few_tests])),
    )


def noise_images(many: int, tests: int, dice: torch.Generator) -> Images:
    """Random images with random labels."""
    import torch

    x, test_x = (torch.randint(0, 256, (n, 3, SIZE, SIZE), dtype=torch.uint8, generator=dice) for n in (many, tests))
    y, test_y = (torch.randint(0, CLASSES, (n,), generator=dice) for n in (many, tests))
    return Images((x, y), (test_x, test_y))


def pipelines(images: Images, recipe: Recipe, trial: Trial, dtype: torch.dtype) -> tuple[Batches, Batches]:
    """Batches to train on and to evaluate, prepared as the rung does it; yields images of `dtype` and labels."""
    import torch

    device = torch.device(trial.case.device)
    if recipe.pipeline == "device":
        make = partial(OnDevice, recipe=recipe, trial=trial, device=device, dtype=dtype)
        return make(images.train, augment=True), make(images.test, augment=False)
    kind = PilImages if recipe.pipeline == "per-sample" else Prepared
    return tuple(  # type: ignore[return-value]
        FromLoader(kind(*part, recipe, augment), recipe, trial, device)
        for part, augment in ((images.train, True), (images.test, False))
    )


class Batches:
    """What both kinds of pipeline are: so many samples, in batches of images and labels on the device."""

    def __init__(self, samples: int, batch: int) -> None:
        self.samples, self.batch = samples, batch

    def __len__(self) -> int:
        return -(-self.samples // self.batch)

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


class FromLoader(Batches):
    """Batches of torch's DataLoader over single samples, in worker processes or in this one."""

    def __init__(self, dataset: PilImages | Prepared, recipe: Recipe, trial: Trial, device: torch.device) -> None:
        import torch
        from torch.utils.data import DataLoader

        super().__init__(len(dataset), trial.batch_size if dataset.augment else TEST_BATCH)
        self.dataset, self.device = dataset, device
        workers = {"per-sample": trial.params.workers, "prepared": 1, "drawn": 0}[recipe.pipeline]
        data: Any = dataset
        self.loader: Any = DataLoader(
            data,
            batch_size=self.batch,
            shuffle=dataset.augment,
            num_workers=workers,
            persistent_workers=recipe.pipeline == "prepared",
            pin_memory=device.type == "cuda",
            generator=torch.Generator().manual_seed(trial.seed),
        )

    def __iter__(self) -> Iterator[Any]:
        self.dataset.begin_epoch()
        for x, y in self.loader:
            yield x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)


class PilImages:
    """PIL images that go through torchvision's transforms each time they are used, as in the entry of 2018."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, recipe: Recipe, augment: bool) -> None:
        from torchvision import transforms as t

        random = [t.RandomCrop(SIZE, padding=recipe.pad, padding_mode="reflect"), t.RandomHorizontalFlip()]
        mean, std = ([value / 255 for value in values] for values in (MEAN, STD))
        self.transform = t.Compose([*(random if augment else []), t.ToTensor(), t.Normalize(mean, std)])
        self.images = images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels, self.augment = labels.tolist(), augment

    def begin_epoch(self) -> None:
        """Nothing is drawn ahead."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class Prepared:
    """Arrays that were padded and normalised once; each sample is only cropped, flipped and cut out."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, recipe: Recipe, augment: bool) -> None:
        self.images = normalised(images, recipe.pad if augment else 0).numpy()
        self.labels, self.augment, self.recipe = labels.tolist(), augment, recipe
        self.drawn: Any = None

    def begin_epoch(self) -> None:
        """Draw for all samples at once, on the rungs that do."""
        if self.augment and self.recipe.pipeline == "drawn":
            self.drawn = draws(len(self), self.recipe).tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.images[index]
        if self.augment:
            row, column, flip, *hole = self.drawn[index] if self.drawn else draws(1, self.recipe)[0].tolist()
            image = image[:, row : row + SIZE, column : column + SIZE]
            image = (image[:, :, ::-1] if flip else image).copy()
            if hole:
                top, left = hole
                image[:, top : top + self.recipe.cutout, left : left + self.recipe.cutout] = 0
        return image, self.labels[index]


def draws(n: int, recipe: Recipe, dice: torch.Generator | None = None) -> torch.Tensor:
    """For each of `n` samples: row and column of the crop, whether to flip, row and column of the hole if any."""
    import torch

    device = dice.device if dice else None
    ends = [2 * recipe.pad + 1, 2 * recipe.pad + 1, 2]
    ends += [SIZE + 1 - recipe.cutout] * 2 if recipe.cutout else []
    return torch.stack([torch.randint(end, (n,), generator=dice, device=device) for end in ends], 1)


def normalised(images: torch.Tensor, pad: int) -> torch.Tensor:
    """uint8 (N, 3, 32, 32) to float32 of mean 0 and variance 1, with `pad` mirrored pixels around."""
    import torch
    from torch.nn.functional import pad as padded

    mean, std = (torch.tensor(values, device=images.device).view(1, 3, 1, 1) for values in (MEAN, STD))
    x = (images.float() - mean) / std
    return padded(x, (pad, pad, pad, pad), mode="reflect") if pad else x


def layout(images: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """`images` in the layout of the recipe's weights."""
    import torch

    return images.contiguous(memory_format=torch.channels_last if recipe.channels_last else torch.contiguous_format)


class OnDevice(Batches):
    """Images that lie in device memory, padded and normalised; everything is done there, a batch at a time."""

    def __init__(
        self,
        part: tuple[torch.Tensor, torch.Tensor],
        *,
        augment: bool,
        recipe: Recipe,
        trial: Trial,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        import torch

        images, labels = part
        super().__init__(len(images), trial.batch_size if augment else TEST_BATCH)
        self.whole_only = augment and not recipe.part_batch and self.samples > self.batch
        self.recipe, self.augment, self.epoch = recipe, augment, -1
        self.images = normalised(images.to(device), recipe.pad if augment else 0).to(dtype)
        self.labels = labels.to(device)
        self.dice = torch.Generator(device).manual_seed(trial.seed)
        self.sides = torch.randint(2, (self.samples,), generator=self.dice, device=device)

    def __len__(self) -> int:
        return self.samples // self.batch if self.whole_only else super().__len__()

    def __iter__(self) -> Iterator[Any]:
        import torch

        if not self.augment:
            for x, y in zip(self.images.split(self.batch), self.labels.split(self.batch), strict=True):
                yield layout(x, self.recipe), y
            return
        self.epoch += 1
        drawn = draws(self.samples, self.recipe, self.dice)
        if self.recipe.alternate:
            drawn[:, 2] = (self.sides + self.epoch) % 2
        order = torch.randperm(self.samples, generator=self.dice, device=self.labels.device)
        for index in order.split(self.batch)[: len(self)]:
            yield layout(self.augmented(index, drawn[index]), self.recipe), self.labels[index]

    def augmented(self, index: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """The images of `index`, each cropped, flipped and cut out as was drawn for it."""
        import torch

        windows = self.images.unfold(2, SIZE, 1).unfold(3, SIZE, 1)  # a view: every crop of every image
        row, column, flip, *hole = drawn.unbind(1)
        x = windows[index, :, row, column]
        x = torch.where(flip.view(-1, 1, 1, 1) > 0, x.flip(3), x)
        if hole:
            axis = torch.arange(SIZE, device=x.device)
            (down, across) = ((axis >= start[:, None]) & (axis < start[:, None] + self.recipe.cutout) for start in hole)
            x = x.masked_fill((down[:, :, None] & across[:, None, :])[:, None], 0)
        return x


class Doubtful(Batches):
    """The test images of which a first look is least certain, with their labels and the logits of that look."""

    def __init__(self, tests: Any, found: list[tuple[torch.Tensor, torch.Tensor]], share: float) -> None:
        super().__init__(int(tests.samples * share), TEST_BATCH // 2)
        self.tests, self.found = tests, found

    def __iter__(self) -> Iterator[Any]:
        import torch

        logits, labels = (torch.cat(each) for each in zip(*self.found, strict=True))
        few = min(self.samples, len(logits))
        chosen = logits.softmax(1).amax(1).topk(few, largest=False).indices
        for index in chosen.split(self.batch):
            yield layout(self.tests.images[index], self.tests.recipe), labels[index], logits[index]


def samples_of(params: Mapping[str, ParamValue]) -> int:
    """Images in an epoch."""
    return int(params["train_images"]) or TRAIN_IMAGES


def recipe_batch(model: str, params: Mapping[str, ParamValue]) -> int:
    """The batch is part of the recipe."""
    return RECIPES[model].batch


FLOPS = {"dawn": 2.75647488e9, "resnet9": 2.272032768e9, "resnet9 whitened": 2.27352576e9, "narrow": 0.68120736e9}
"""Forward and backward of one image, as torch's FlopCounterMode counts them (a test counts again)."""
WHITENING_BIAS_FLOPS = 0.026569728e9
"""What the way back to the whitening layer of `narrow` costs while its bias is trained."""


def flops(model: str, params: Mapping[str, ParamValue]) -> float:
    """FLOPs of forward and backward per training image, a mean over the epochs; the optimizer's products not counted.

    A formula, because a compiled step cannot be counted.
    """
    recipe = RECIPES[model]
    counted = FLOPS[recipe.network + " whitened" * (recipe.network == "resnet9" and recipe.whiten > 0)]
    return counted + WHITENING_BIAS_FLOPS * recipe.whiten_epochs / recipe.epochs


SUITE = Suite(
    train=train,
    version=4,
    models=tuple(RECIPES),
    params={
        "epochs": Param(0, "epochs of the whole run; 0 is the rung's own; its schedule is stretched to them"),
        "workers": Param(4, "loader processes of the first two rungs"),
        "compile": Param(False, "torch.compile the network; on CUDA with max-autotune"),
        "validate": Param(False, "also evaluate between epochs, outside the run's time, and print the accuracy"),
        "runs_per_process": Param(
            1, "whole runs of a trial, for recipes of seconds; their median is its time", least=1
        ),
        "train_images": Param(0, "train on the first so many images only; 0 is all"),
        "valid_images": Param(0, "evaluate on the first so many images only; 0 is all"),
    },
    quality="accuracy",
    goal=GOAL,
    unit="images",
    recipe_batch=recipe_batch,
    studies=("ladder",),
    flops=flops,
    train_samples=samples_of,
    data=("cifar10",),
)
