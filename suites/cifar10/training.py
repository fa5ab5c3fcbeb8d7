"""Trains a rung: warm-up, learning rate, steps, average of the weights, evaluation, loop over runs and epochs."""

import ctypes
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch.nn.functional import cross_entropy, pad

from gpubench import Blueprint, Clock, Trial
from gpubench.training import Mode, Stepper, event_of, mode_of
from gpubench.training.precision import KINDS

from .data import Batch, Batches, Doubtful, Images, OnDevice, layout, load_images, noise_images, normalised, pipelines
from .networks import network, prepared, whiten, whitening_layer
from .optimizers import optimizers
from .recipe import GOAL, RECIPES, SIZE, TEST_BATCH, TRAIN_IMAGES, Knots, Recipe, Stage, stage_at, stages_of


def at(knots: Knots, epoch: float) -> float:
    """Return the value of a piecewise linear schedule at `epoch`."""
    for (start, low), (end, high) in pairwise(knots):
        if epoch <= end:
            return low + (high - low) * (epoch - start) / (end - start)
    return knots[-1][1]


def rate_at(recipe: Recipe, epoch: float, epochs: int) -> float:
    """Return the learning rate at `epoch`, with the rung's schedule scaled to `epochs` epochs."""
    return at(recipe.lr, epoch * recipe.epochs / epochs)


def follow(average: torch.nn.Module, model: torch.nn.Module, decay: float) -> None:
    """Move the average of weights and statistics towards those of `model`."""
    for slow, fast in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
        if slow.is_floating_point():
            slow.lerp_(fast, 1 - decay)


class Objective(torch.nn.Module):
    """The forward pass and the loss of a batch in one module, to be compiled together."""

    def __init__(self, model: torch.nn.Module, recipe: Recipe, mode: Mode) -> None:
        super().__init__()
        self.model, self.recipe, self.mode = model, recipe, mode

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean loss, and the loss of each image, (N,)."""
        with self.mode.autocast():
            logits = self.model(self.mode.input(images))
        smoothing = self.recipe.label_smoothing
        losses = cross_entropy(logits.float(), labels, label_smoothing=smoothing, reduction="none")
        return losses.mean(), losses.detach()


class Run:
    """One training from fresh weights: its optimizers, its schedule, its average of the weights."""

    def __init__(self, objective: Objective, trial: Trial, clock: Clock) -> None:
        self.objective, self.trial, self.clock = objective, trial, clock
        self.model, self.recipe, self.mode = objective.model, objective.recipe, objective.mode
        recipe, mode = self.recipe, self.mode
        self.device, self.dtype = torch.device(trial.case.device), KINDS[mode.name].operand
        self.epochs = trial.params.epochs or recipe.epochs
        self.train_whitening(True)
        self.optimizers = optimizers(self.model, recipe, self.dtype, compiled=trial.params.compile)
        # fp16-pure needs the sum of the losses, as in cifar10-fast: gradients of a mean are too small.
        small = mode.name == "fp16-pure"
        scale = trial.params.loss_scale or (trial.batch_size if small else 0)
        self.stepper = Stepper(mode, self.model, self.optimizers, clock, loss_scale=scale)
        self.average = prepared(network(recipe), recipe, mode, self.device) if recipe.ema else self.model
        self.steps, self.total_steps = 0, 1
        self.losses = torch.empty(0)

    def whole(self, images: Images) -> dict[str, float]:
        """Prepare the data, train all epochs, evaluate; return accuracy and loss."""
        clock, recipe = self.clock, self.recipe
        for part in clock.steps([images], phase="preprocess", count=lambda part: len(part.train[0])):
            batches, tests = self.prepare(part)
        self.model.train()
        for epoch in clock.epochs(self.epochs, stages_of(recipe, self.epochs)):
            self.begin(batches, epoch)
            for batch in clock.steps(batches, phase="train"):
                self.step(batch)
            if self.trial.params.validate and epoch + 1 < self.epochs:
                quality = self.evaluate(tests, counted=False)
                print(f"after epoch {epoch + 1}: {quality['accuracy']:.2%}", flush=True)
        return self.evaluate(tests)

    def prepare(self, images: Images) -> tuple[Batches, Batches]:
        """Set the whitening filters, copy the weights to their average; return the training and the test batches."""
        batches, tests = pipelines(images, self.recipe, self.trial, self.dtype)
        self.total_steps = sum(map(batches.steps_of, range(self.epochs)))
        if isinstance(batches, OnDevice):
            self.losses = batches.losses
        if self.recipe.whiten:
            sample = images.train[0][: self.recipe.whiten_images].to(self.device)
            whiten(whitening_layer(self.model), normalised(sample, 0), self.recipe.whiten)
        if self.recipe.ema:
            self.average.load_state_dict(self.model.state_dict())
        return batches, tests

    def begin(self, batches: Batches, epoch: int) -> None:
        """Prepare an epoch: the size of its images, and whether the whitening layer is trained."""
        batches.begin(epoch)
        self.train_whitening(stage_at(self.recipe, epoch, self.epochs).whitening)

    def step(self, batch: Batch) -> torch.Tensor:
        """Take one step of the optimizers at the current learning rate; return the loss, a scalar."""
        self.steps += 1
        lr = rate_at(self.recipe, self.epochs * self.steps / self.total_steps, self.epochs)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * group["factor"]
        images, labels, *places = batch
        loss, losses = self.objective(images, labels)
        loss = loss.clone()  # the stepper keeps the loss, which the next replay of a CUDA graph would overwrite
        if places:
            self.losses[places[0]] = losses
        self.stepper.backward(loss)
        self.stepper.step()
        if self.recipe.ema and self.steps % 5 == 0:  # averaging more often was no better (Page)
            follow(self.average, self.model, self.recipe.ema**5)
        return loss.detach()

    def train_whitening(self, on: bool) -> None:
        """Set whether the bias of the whitening convolution is trained, which needs a longer backward pass."""
        if self.recipe.network == "narrow":
            whitening_layer(self.model).bias.requires_grad_(on)  # type: ignore[union-attr]

    def evaluate(self, tests: Batches, *, phase: str = "valid", counted: bool = True) -> dict[str, float]:
        """Return accuracy and loss on the test images. Later rungs evaluate the least certain again in more views."""
        recipe, outputs = self.recipe, []
        selective = recipe.views > 1 and recipe.doubtful < 1
        self.average.eval()
        right, loss = (torch.zeros((), device=self.device) for _ in range(2))
        for x, y in self.clock.steps(tests, phase=phase, samples=tests.samples, counted=counted):
            logits = self.logits(x, 1 if selective else recipe.views)
            right += (logits.argmax(1) == y).sum()
            loss += cross_entropy(logits, y, reduction="sum")
            outputs.append((logits, y))
        if selective:
            assert isinstance(tests, OnDevice)
            again = Doubtful(tests, outputs, recipe.doubtful)
            for x, y, before in self.clock.steps(again, phase=phase, samples=again.samples, counted=counted):
                logits = self.logits(x, recipe.views)
                right += (logits.argmax(1) == y).sum() - (before.argmax(1) == y).sum()
                loss += cross_entropy(logits, y, reduction="sum") - cross_entropy(before, y, reduction="sum")
        self.average.train()
        many = sum(len(y) for _, y in outputs)  # a sampled run evaluates only some of the images
        total_right, total_loss = torch.stack([right, loss]).tolist()  # the only wait for the device
        return {"accuracy": total_right / many, "loss": total_loss / many}

    def logits(self, images: torch.Tensor, views: int) -> torch.Tensor:
        """Return float32 logits of `images` (N, 3, 32, 32), a weighted mean over `views` of each."""
        shown = [images]
        if views == 6:
            wide = pad(images, (1, 1, 1, 1), mode="reflect")
            shown += [wide[..., :SIZE, :SIZE], wide[..., 2:, 2:]]
        if views > 1:
            shown += [view.flip(3) for view in shown]
        with torch.no_grad(), self.mode.autocast():
            logits = self.average(self.mode.input(layout(torch.cat(shown), self.recipe)))
        both = logits.float().view(min(views, 2), -1, len(images), logits.shape[1]).mean(0)
        return both[0] if len(both) == 1 else both[0] / 2 + both[1:].mean(0) / 2


def warm_up(objective: Objective, trial: Trial, clock: Clock) -> None:
    """Prepare, train on and evaluate random images, so that the run has no first-time costs."""
    recipe, many, batch = objective.recipe, trial.params.train_images or TRAIN_IMAGES, trial.batch_size
    some, tests = min(many, batch) + (many % batch if many > batch else 0), 2 * TEST_BATCH
    if trial.case.device == "cpu" and not trial.params.compile:
        some, tests = min(32, many), 8
    elif recipe.pipeline == "device":  # memory and compiled code depend on the number of images
        some = many
    noise = noise_images((some, tests), trial.seed)
    run = Run(objective, trial, clock)
    batches, seen = run.prepare(noise)
    first: dict[Stage, int] = {}  # the first epoch of each stage
    for epoch in range(run.epochs):
        first.setdefault(stage_at(recipe, epoch, run.epochs), epoch)
    # The second step of a shape records CUDA graphs; the third is the first normal step.
    times = 3 if trial.params.compile and run.device.type == "cuda" else 1
    for epoch in first.values():
        for _ in range(times):
            run.begin(batches, epoch)
            # A smaller last batch has a different shape.
            few = batches if recipe.part_batch else [next(iter(batches))]
            for step in clock.steps(few, phase="warmup", counted=False):
                run.step(step)
    for _ in range(times):
        run.evaluate(seen, phase="warmup", counted=False)


def keep_memory() -> None:
    """Make glibc keep freed memory, as torch does on CUDA.

    By default it returns large blocks to the system, which then clears every page of every large tensor in every
    step. This took a fifth of a step of `speedrun` on two cores. Does nothing without glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        most_mapped_blocks, trim_threshold_bytes, padding_bytes = -4, -1, -2  # malloc.h
        mallopt(most_mapped_blocks, 0)
        mallopt(trim_threshold_bytes, 2**31 - 1)
        mallopt(padding_bytes, 2**28)


def blueprint(trial: Trial) -> Blueprint:
    """Return the rung's network and learning rate."""
    recipe = RECIPES[trial.case.model]
    epochs = trial.params.epochs or recipe.epochs
    model = network(recipe)
    if recipe.network == "narrow":  # not trained in most epochs
        whitening_layer(model).bias.requires_grad_(False)  # type: ignore[union-attr]
    factors = {"biases": recipe.bias_lr, "the last layer": recipe.head_lr}
    faster = [f"by {factor:g} for {name}" for name, factor in factors.items() if factor != 1]
    return Blueprint(
        network=model,
        inputs=(torch.zeros(2, 3, SIZE, SIZE),),
        epochs=epochs,
        schedule={"learning rate": partial(rate_at, recipe, epochs=epochs)},
        note=f"This rate is multiplied {' and '.join(faster)}" if faster else "",
    )


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Train a rung once or several times; return mean accuracy (fraction), mean loss and `success_rate` of the runs."""
    recipe, params = RECIPES[trial.case.model], trial.params
    device = torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    if device.type == "cpu":
        keep_memory()
    images = load_images(trial)
    model = prepared(network(recipe), recipe, mode, device)
    objective = Objective(model, recipe, mode)
    if params.compile:
        # max-autotune as in the record runs; a CPU has no launches to save. Each batch size has its own kernels.
        for module in (model, objective):
            module.compile(dynamic=False, **({"mode": "max-autotune"} if device.type == "cuda" else {}))
    warm_up(objective, trial, clock)
    qualities = []
    # An evaluation between epochs waits for the device anyway.
    event = None if params.validate or recipe.pipeline != "device" else event_of(device)
    for number in clock.runs(params.runs_per_process, event):
        torch.manual_seed(trial.seed + 1000 * number)
        model.load_state_dict(network(recipe).state_dict())
        run = Run(objective, replace(trial, seed=trial.seed + 1000 * number), clock)
        qualities.append(run.whole(images))
    model.train()
    for batch in clock.resident():
        run.step(batch)
    if not clock.complete:
        return {}
    means = {name: sum(quality[name] for quality in qualities) / len(qualities) for name in ("accuracy", "loss")}
    reached = sum(quality["accuracy"] >= GOAL for quality in qualities)
    return {**means, "success_rate": reached / len(qualities)}
