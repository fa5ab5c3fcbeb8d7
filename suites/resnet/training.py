"""The networks of the recipes `full` and `article`, fastai's Learner (AdamW, one cycle) around them, and the run."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fastai.callback.core import Callback, CancelFitException
from fastai.callback.schedule import fit_one_cycle  # noqa: F401  (adds it to Learner)
from fastai.data.core import DataLoaders
from fastai.layers import AdaptiveConcatPool2d, Flatten
from fastai.learner import Learner
from fastai.losses import CrossEntropyLossFlat
from fastai.metrics import accuracy
from fastai.optimizer import OptimWrapper
from torch import nn
from torchvision.models import resnet

from gpubench import Blueprint, Clock, Trial
from gpubench.data.datasets import locate_weights
from gpubench.suite.precisions import PRECISIONS
from gpubench.training import layout, mode_of, weighted_mean
from gpubench.training.fastai import callbacks, share, train_resident

from . import CLASSES, samples_of
from .data import device_loader, load_images, split, worker_loader

FULL_RATE, ARTICLE_RATE, ARTICLE_NAMED_RATE = 3e-3, 3e-3, 1e-2
"""Peak learning rates if `lr` is 0. The last is for the case in which the article's notebooks name a rate."""


def learner(trial: Trial, data: DataLoaders, clock: Clock | None, model: torch.nn.Module, **options: Any) -> Learner:
    """Return the Learner of both recipes: AdamW with weight decay 0.01. Without a clock it can only be drawn."""
    # fastai 1's betas; torch's are (0.9, 0.999). The one cycle changes the first beta.
    betas = {"betas": (0.9, 0.99)} if trial.params.recipe == "article" else {}
    device = torch.device(trial.case.device)
    model = model.to(device).to(memory_format=layout(trial.case))
    if trial.params.compile:
        model.compile()  # in place, so that a recipe's splitter still finds its body and its head
    mode = mode_of(trial.case.precision, trial.case.device)
    return Learner(
        data,
        model,
        loss_func=CrossEntropyLossFlat(),
        metrics=accuracy,
        opt_func=partial(OptimWrapper, opt=torch.optim.AdamW, fused=True, eps=mode.adam_eps, **betas),
        wd=1e-2,
        cbs=callbacks(clock, mode, data.train.samples, data.valid.samples, trial.params.loss_scale) if clock else [],
        **options,
    )


def article_learner(trial: Trial, data: DataLoaders, clock: Clock | None) -> Learner:
    """Return the Learner of `create_cnn` in 2019: a pretrained body, frozen except its BatchNorm, and a new head."""
    network = getattr(resnet, trial.case.model)()
    if trial.case.weights != "random":
        path = locate_weights(trial.case.weights, Path(trial.weights_dir) if trial.weights_dir else None)
        assert path is not None  # the parent process found the file before it planned this trial
        network.load_state_dict(torch.load(path, weights_only=True))
    features = 2 * network.fc.in_features  # average and maximum pooling side by side
    body = nn.Sequential(*list(network.children())[:-2])
    head = nn.Sequential(
        AdaptiveConcatPool2d(),
        Flatten(),
        nn.BatchNorm1d(features),
        nn.Dropout(0.25),
        nn.Linear(features, 512),
        nn.ReLU(inplace=True),
        nn.BatchNorm1d(512),
        nn.Dropout(0.5),
        nn.Linear(512, CLASSES),
    )
    for layer in head:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    groups = [list(part.parameters()) for part in (body[:6], body[6:], head)]
    learn = learner(trial, data, clock, nn.Sequential(body, head), splitter=lambda model: groups)
    learn.freeze()  # all weights but the last group's and BatchNorm's
    return learn


def learner_of(trial: Trial, data: DataLoaders, clock: Clock | None) -> Learner:
    """Return the recipe's Learner; `full` trains all weights of torchvision's network from random values."""
    if trial.params.recipe == "article":
        return article_learner(trial, data, clock)
    return learner(trial, data, clock, getattr(resnet, trial.case.model)(num_classes=CLASSES))


def one_cycle(learn: Learner, trial: Trial) -> None:
    """Train all epochs of the recipe's cycle."""
    epochs, lr = trial.params.epochs, trial.params.lr
    if trial.params.recipe == "full":
        learn.fit_one_cycle(epochs, lr or FULL_RATE)
        return
    steps = epochs * max(1, samples_of(trial.case.params) // (trial.batch_size * trial.case.processes))
    # The article's notebooks name a learning rate only for ResNet-18 in fp32; all groups get it. By default fastai's
    # slice gives the body a tenth of the head's rate.
    named = trial.case.model == "resnet18" and PRECISIONS[trial.case.precision].full
    rate = lr or (ARTICLE_NAMED_RATE if named else slice(ARTICLE_RATE))
    # In fastai 1 the rise has whole steps, and the fall ends at 1 / 10,000 of the first rate.
    learn.fit_one_cycle(
        epochs, rate, moms=(0.95, 0.85, 0.95), pct_start=max(1, int(0.3 * steps)) / steps, div_final=25e4
    )


class KeepSchedule(Callback):
    """Keeps the schedule of a fit, and ends the fit before its first step."""

    order = -1000

    def before_fit(self) -> None:
        self.schedule = self.learn.param_scheduler.scheds
        raise CancelFitException


def blueprint(trial: Trial) -> Blueprint:
    """Return the Learner's network, and the learning rate and momentum of fastai's one cycle."""
    nothing, epochs, size = SimpleNamespace(samples=0), trial.params.epochs, trial.params.image_size
    learn = learner_of(trial, DataLoaders(nothing, nothing), None)
    keep = KeepSchedule()
    learn.add_cb(keep)
    with learn.no_bar(), learn.no_logging():
        one_cycle(learn, trial)
    rates, momenta = keep.schedule["lr"], keep.schedule["mom"]
    return Blueprint(
        network=learn.model,
        inputs=(torch.zeros(2, 3, size, size),),
        epochs=epochs,
        schedule={
            "learning rate": lambda epoch: float(rates(epoch / epochs)[-1]),  # of the last group
            "momentum": lambda epoch: float(momenta(epoch / epochs)),
        },
    )


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Train by the recipe; return accuracy (fraction) and loss on the validation images."""
    train_images, valid_images = split(load_images(trial), trial)
    loader = device_loader if trial.params.pipeline == "device" else worker_loader
    train_loader = loader(*train_images, trial, augment=True)
    valid_loader = loader(*valid_images, trial, augment=False)
    data = DataLoaders(train_loader, valid_loader, device=torch.device(trial.case.device))
    learn = learner_of(trial, data, clock)
    share(learn, trial)
    with learn.no_bar(), learn.no_logging():
        one_cycle(learn, trial)
        train_resident(learn, clock)
    if not clock.complete:
        return {}
    validated = sum(shard.stop - shard.start for shard in valid_loader.shards)
    loss, accuracy = weighted_mean(learn.recorder.values[-1][1:], validated, trial)
    return {"accuracy": float(accuracy), "loss": float(loss)}
