"""The networks of both recipes, fastai's Learner around them, and the run."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from fastai.callback.schedule import fit_one_cycle  # noqa: F401  (adds it to Learner)
from fastai.data.core import DataLoaders
from fastai.layers import AdaptiveConcatPool2d, Flatten
from fastai.learner import Learner
from fastai.losses import CrossEntropyLossFlat
from fastai.metrics import accuracy
from fastai.optimizer import OptimWrapper
from torch import nn
from torchvision.models import resnet

from gpubench import Clock, Trial
from gpubench.data.datasets import locate_weights
from gpubench.training import layout, mode_of, weighted_mean
from gpubench.training.fastai import callbacks, share, train_resident

from .data import DeviceLoader, load_images, split, worker_loader
from .sizes import CLASSES


def weights_file(trial: Trial) -> Path:
    """The state dict of torchvision's ImageNet weights, version 1, for the trial's model."""
    path = locate_weights(trial.case.weights, Path(trial.weights_dir) if trial.weights_dir else None)
    assert path is not None  # the parent found it before it planned this trial
    return path


def body_and_head(model: torch.nn.Sequential) -> list[list[torch.nn.Parameter]]:
    """Two parameter groups, so that `freeze` can hold the first."""
    return [list(model[0].parameters()), list(model[1].parameters())]


def learner(trial: Trial, data: DataLoaders, clock: Clock, model: torch.nn.Module, **options: Any) -> Learner:
    """The Learner of both recipes: AdamW with true weight decay 0.01, as fastai v1 used it through torch's Adam."""
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
        opt_func=partial(OptimWrapper, opt=torch.optim.AdamW, fused=True),
        wd=1e-2,
        cbs=callbacks(clock, mode, data.train.samples, data.valid.samples, trial.params.loss_scale),
        **options,
    )


def full_learner(trial: Trial, data: DataLoaders, clock: Clock) -> Learner:
    """torchvision's network with all weights random and all of them training."""
    model = getattr(resnet, trial.case.model)(num_classes=CLASSES)
    return learner(trial, data, clock, model)


def article_learner(trial: Trial, data: DataLoaders, clock: Clock) -> Learner:
    """The 2019 `create_cnn`: pretrained body, frozen but for its BatchNorm, and fastai's head of that time."""
    network = getattr(resnet, trial.case.model)()
    if trial.case.weights != "random":
        network.load_state_dict(torch.load(weights_file(trial), weights_only=True))
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
    for part in head:
        if isinstance(part, nn.Linear):
            nn.init.kaiming_normal_(part.weight)
    learn = learner(trial, data, clock, nn.Sequential(body, head), splitter=body_and_head)
    learn.freeze()
    return learn


def train_recipe(trial: Trial, clock: Clock) -> dict[str, float]:
    """One run of the recipe; returns accuracy (fraction) and loss on the validation images."""
    params = trial.params
    device = torch.device(trial.case.device)
    images = load_images(trial)
    train_images, valid_images = split(images, trial)
    loader = DeviceLoader if params.pipeline == "device" else worker_loader
    train_loader = loader(*train_images, trial, augment=True)
    valid_loader = loader(*valid_images, trial, augment=False)
    data = DataLoaders(train_loader, valid_loader, device=device)
    learn = article_learner(trial, data, clock) if params.recipe == "article" else full_learner(trial, data, clock)
    share(learn, trial)
    momentum = {"moms": (0.95, 0.85, 0.95), "pct_start": 0.3} if params.recipe == "article" else {}
    with learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(params.epochs, params.lr, **momentum)
        train_resident(learn, clock)
    if not clock.complete:
        return {}
    validated = sum(shard.stop - shard.start for shard in valid_loader.shards)
    loss, accuracy = weighted_mean(learn.recorder.values[-1][1:], validated, trial)
    return {"accuracy": float(accuracy), "loss": float(loss)}
