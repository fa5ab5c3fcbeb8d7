"""CIFAR-100 on ResNet-18 to 152 in fastai: time of a whole run.

After the benchmark of an RTX 2080 Ti against a GTX 1080 Ti (S. Bhutani, 2019;
init27/RTX-2080Ti-Vs-GTX-1080Ti-CIFAR-100-Benchmarks). Its procedure is `recipe=article`: an ImageNet body that stays
frozen but for its BatchNorm, a new head, the CPU's transforms, one cycle of 30 epochs. `recipe=full`, the default,
trains every weight from random initialisation.

Timed: all epochs of `Learner.fit_one_cycle`, validation and input pipeline included. Not timed: imports, building the
model, reading the dataset.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench import Param, ParamValue, Suite
from gpubench.training import Shard, shards

if TYPE_CHECKING:  # `gpubench list` reads this file without torch
    import torch
    from fastai.learner import Learner

    from gpubench import Clock, Trial

CLASSES = 100
TRAIN_IMAGES, TEST_IMAGES = 50_000, 10_000
ARTICLE_VALID_IMAGES = 12_000  # a fifth of train and test pooled
ARTICLE_SPLIT_SEED = 42
SIZE = 32
MEAN, STD = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """One run of the recipe; returns accuracy (fraction) and loss on the validation images."""
    import torch
    from fastai.callback.schedule import fit_one_cycle  # noqa: F401  (adds it to Learner)
    from fastai.data.core import DataLoaders

    from gpubench.training import weighted_mean
    from gpubench.training.fastai import share, train_resident

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


# Models


def full_learner(trial: Trial, data: Any, clock: Clock) -> Learner:
    """torchvision's network with all weights random and all of them training."""
    from torchvision.models import resnet

    model = getattr(resnet, trial.case.model)(num_classes=CLASSES)
    return learner(trial, data, clock, model)


def article_learner(trial: Trial, data: Any, clock: Clock) -> Learner:
    """The 2019 `create_cnn`: pretrained body, frozen but for its BatchNorm, and fastai's head of that time."""
    import torch
    from fastai.layers import AdaptiveConcatPool2d, Flatten
    from torch import nn
    from torchvision.models import resnet

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


def body_and_head(model: torch.nn.Sequential) -> list[list[torch.nn.Parameter]]:
    """Two parameter groups, so that `freeze` can hold the first."""
    return [list(model[0].parameters()), list(model[1].parameters())]


def learner(trial: Trial, data: Any, clock: Clock, model: torch.nn.Module, **options: Any) -> Learner:
    """The Learner of both recipes: AdamW with true weight decay 0.01, as fastai v1 used it through torch's Adam."""
    import torch
    from fastai.learner import Learner
    from fastai.losses import CrossEntropyLossFlat
    from fastai.metrics import accuracy
    from fastai.optimizer import OptimWrapper

    from gpubench.training import layout, mode_of
    from gpubench.training.fastai import callbacks

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


def weights_file(trial: Trial) -> Path:
    """The state dict of torchvision's ImageNet weights, version 1, for the trial's model."""
    from gpubench.data.datasets import locate_weights

    path = locate_weights(trial.case.weights, Path(trial.weights_dir) if trial.weights_dir else None)
    assert path is not None  # the parent found it before it planned this trial
    return path


# Data


def load_images(trial: Trial) -> tuple[Any, Any, Any, Any]:
    """Train and test images, uint8 (N, 3, 32, 32), and labels, int64 (N,)."""
    import torch

    if trial.synthetic:
        dice = torch.Generator().manual_seed(trial.seed)
        train, valid = TRAIN_IMAGES, TEST_IMAGES
        if trial.params.recipe == "full":  # the article draws from all images
            train, valid = trial.params.train_images or train, trial.params.valid_images or valid
        images = torch.randint(0, 256, (train + valid, 3, SIZE, SIZE), dtype=torch.uint8, generator=dice)
        labels = torch.randint(0, CLASSES, (train + valid,), generator=dice)
        return images[:train], labels[:train], images[train:], labels[train:]
    from gpubench.data.datasets import load_cifar

    train_split, test_split = load_cifar("cifar100", Path(trial.data_dir))
    return (
        torch.from_numpy(train_split.images),
        torch.from_numpy(train_split.labels),
        torch.from_numpy(test_split.images),
        torch.from_numpy(test_split.labels),
    )


def split(images: tuple[Any, Any, Any, Any], trial: Trial) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """(images, labels) to train on and to validate on; the article pooled both sets and drew a fifth."""
    import torch

    x, y, test_x, test_y = images
    if trial.params.recipe == "article":
        x, y = torch.cat([x, test_x]), torch.cat([y, test_y])
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(ARTICLE_SPLIT_SEED))
        held_out, kept = order[:ARTICLE_VALID_IMAGES], order[ARTICLE_VALID_IMAGES:]
        x, y, test_x, test_y = x[kept], y[kept], x[held_out], y[held_out]
    few, few_valid = trial.params.train_images or len(x), trial.params.valid_images or len(test_x)
    return (x[:few], y[:few]), (test_x[:few_valid], test_y[:few_valid])


class DeviceLoader:
    """Batches from uint8 images that stay in device memory; everything else happens there too.

    With the images on the device a fast card is not starved by the host. Yields float images
    (batch, 3, image_size, image_size), normalised, and labels. Every process has all images, and of each
    step its own share.
    """

    def __init__(self, images: Any, labels: Any, trial: Trial, *, augment: bool) -> None:
        import torch

        from gpubench.training import layout

        self.device = torch.device(trial.case.device)
        self.images, self.labels = images.to(self.device), labels.to(self.device)
        self.samples, self.augment = len(images), augment
        self.trial, self.shards = trial, shards_of(len(images), trial, augment)
        self.layout = layout(trial.case)
        self.order = torch.Generator(self.device).manual_seed(trial.seed)
        self.dice = torch.Generator(self.device).manual_seed(own_seed(trial))
        self.mean = torch.tensor(MEAN, device=self.device).view(1, 3, 1, 1)
        self.std = torch.tensor(STD, device=self.device).view(1, 3, 1, 1)

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        import torch

        order = (
            torch.randperm(self.samples, generator=self.order, device=self.device)
            if self.augment
            else torch.arange(self.samples, device=self.device)
        )
        for shard in self.shards:
            index = order[shard.start : shard.stop]
            yield self.prepare(self.images[index]), self.labels[index]

    def prepare(self, images: Any) -> Any:
        """uint8 (N, 3, 32, 32) to what the model takes."""
        from torch.nn.functional import interpolate

        params = self.trial.params
        if self.augment and params.recipe == "full":
            images = crop_and_flip(images, self.dice)
        x = images.float().div_(255)
        if self.augment and params.recipe == "article":
            x = article_transforms(x, params.image_size, self.dice)
        elif params.image_size != SIZE:
            size = (params.image_size, params.image_size)
            x = interpolate(x, size=size, mode="bilinear", align_corners=False)
        x = (x - self.mean) / self.std
        return x.contiguous(memory_format=self.layout)


def crop_and_flip(images: Any, dice: torch.Generator) -> Any:
    """Pad by 4, crop 32 at random, flip half of them: the usual augmentation for CIFAR, for a whole batch at once."""
    import torch
    from torch.nn.functional import pad

    n, device = len(images), images.device
    rows = torch.randint(0, 9, (n, 1, 1, 1), generator=dice, device=device)
    columns = torch.randint(0, 9, (n, 1, 1, 1), generator=dice, device=device)
    rows = rows + torch.arange(SIZE, device=device).view(1, 1, SIZE, 1)
    columns = columns + torch.arange(SIZE, device=device).view(1, 1, 1, SIZE)
    flip = torch.rand((n, 1, 1, 1), generator=dice, device=device) < 0.5
    columns = torch.where(flip, columns.flip(3), columns)
    which = torch.arange(n, device=device).view(n, 1, 1, 1)
    channels = torch.arange(3, device=device).view(1, 3, 1, 1)
    cropped: torch.Tensor = pad(images, (4, 4, 4, 4))[which, channels, rows, columns]
    return cropped


def article_transforms(images: Any, size: int, dice: torch.Generator) -> Any:
    """fastai v1's `get_transforms()` on a batch: flip, rotate to 10 degrees, zoom to 1.1, warp and lighting to 0.2."""
    import torch
    from torch.nn.functional import grid_sample

    n, device = len(images), images.device

    def draw(low: float, high: float) -> Any:
        return low + (high - low) * torch.rand(n, 1, 1, generator=dice, device=device)

    angle, zoom = draw(-10, 10) * math.pi / 180, draw(1, 1.1)
    flip = torch.where(draw(0, 1) < 0.5, -1.0, 1.0)
    axis = (torch.arange(size, device=device) * 2 + 1) / size - 1
    y, x = axis.view(1, size, 1), axis.view(1, 1, size)
    depth = 1 + draw(-0.2, 0.2) * x + draw(-0.2, 0.2) * y  # a tilt towards or away from the viewer
    x, y = x / depth / zoom, y / depth / zoom
    grid = torch.stack([flip * (x * angle.cos() - y * angle.sin()), x * angle.sin() + y * angle.cos()], dim=3)
    warped = grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    contrast, brightness = draw(0.8, 1.25).unsqueeze(3), draw(-0.1, 0.1).unsqueeze(3)
    return ((warped - 0.5) * contrast + 0.5 + brightness).clamp_(0, 1)


def worker_loader(images: Any, labels: Any, trial: Trial, *, augment: bool) -> Any:
    """A torch DataLoader whose worker processes transform PIL images one by one, as in 2019."""
    import torch
    from torch.utils.data import DataLoader

    from gpubench.training import memory_format

    dataset: Any = PilImages(images, labels, trial, augment)
    batches: Any = ShardedBatches(len(images), trial, augment)
    loader: Any = DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=trial.params.workers,
        pin_memory=trial.case.device.startswith("cuda"),
        collate_fn=partial(collate, memory_format=memory_format(trial.case)),
        generator=torch.Generator().manual_seed(own_seed(trial)),
    )
    loader.samples, loader.shards = len(images), batches.shards
    loader.device = torch.device(trial.case.device)  # fastai moves the model to its own default where a loader has none
    return loader


class ShardedBatches:
    """Indices of this process's share of each step, in an order that all processes have."""

    def __init__(self, samples: int, trial: Trial, shuffle: bool) -> None:
        import torch

        self.samples, self.shuffle = samples, shuffle
        self.shards = shards_of(samples, trial, shuffle)
        self.order = torch.Generator().manual_seed(trial.seed)

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[list[int]]:
        import torch

        order = torch.randperm(self.samples, generator=self.order) if self.shuffle else torch.arange(self.samples)
        for shard in self.shards:
            yield order[shard.start : shard.stop].tolist()


def collate(samples: list[tuple[Any, int]], memory_format: str) -> list[Any]:
    """Images and labels of a batch, in the layout of the weights."""
    import torch
    from torch.utils.data import default_collate

    images, labels = default_collate(samples)
    layout = torch.channels_last if memory_format == "channels_last" else torch.contiguous_format
    return [images.contiguous(memory_format=layout), labels]


class PilImages:
    """A dataset of PIL images that are transformed on the CPU, one at a time."""

    def __init__(self, images: Any, labels: Any, trial: Trial, augment: bool) -> None:
        from torchvision import transforms as t

        params = trial.params
        resize = [t.Resize((params.image_size, params.image_size))] if params.image_size != SIZE else []
        random: list[Any] = []
        if augment and params.recipe == "full":
            random = [t.RandomCrop(SIZE, padding=4), t.RandomHorizontalFlip(), *resize]
        elif augment:
            lighting = t.ColorJitter(brightness=0.2, contrast=0.2)
            turn = t.RandomAffine(degrees=10, scale=(1.0, 1.1))
            random = [*resize, t.RandomHorizontalFlip(), turn, t.RandomPerspective(0.2, p=1.0), lighting]
        self.transform = t.Compose([*(random or resize), t.ToTensor(), t.Normalize(MEAN, STD)])
        self.images = images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels = labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def shards_of(samples: int, trial: Trial, train: bool) -> list[Shard]:
    """This process's share of each step of an epoch; a lone sample cannot train a BatchNorm and is left out."""
    return shards(
        samples,
        trial.batch_size,
        rank=trial.rank,
        world=trial.case.processes,
        least=2 if train and trial.batch_size > 1 else 1,
        evaluate=not train,
    )


def own_seed(trial: Trial) -> int:
    """A seed for what each process draws for itself; the order of samples is drawn from the trial's own."""
    return trial.seed + ((trial.rank + 1) << 32)


def pretrained(model: str, params: Mapping[str, ParamValue]) -> str:
    """The weights the article's recipe starts from."""
    return f"{model}-imagenet1k-v1" if params["recipe"] == "article" else ""


def samples_of(params: Mapping[str, ParamValue]) -> int:
    """Images in one training epoch."""
    there = TRAIN_IMAGES + TEST_IMAGES - ARTICLE_VALID_IMAGES if params["recipe"] == "article" else TRAIN_IMAGES
    return min(int(params["train_images"]) or there, there)


def most_elements(model: str, params: Mapping[str, ParamValue]) -> int:
    """Of an image: the first convolution's 64 channels at half the size, which no later layer of a ResNet exceeds."""
    return 64 * (-(-int(params["image_size"]) // 2)) ** 2


SUITE = Suite(
    train=train,
    version=4,
    models=("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    params={
        "recipe": Param("full", "what trains, and how", choices=("full", "article")),
        "epochs": Param(30, "epochs of the whole run", least=1),
        "image_size": Param(224, "pixels the 32 x 32 images are resized to", least=8),
        "lr": Param(3e-3, "peak learning rate of the one-cycle schedule"),
        "pipeline": Param("device", "where images are prepared", choices=("device", "workers")),
        "workers": Param(4, "loader processes of pipeline=workers"),
        "memory_format": Param(
            "auto",
            "layout of images and weights; auto is the faster one in this precision on this device",
            choices=("auto", "channels_last", "contiguous"),
        ),
        "compile": Param(False, "torch.compile the model"),
        "train_images": Param(0, "train on the first so many images only; 0 is all"),
        "valid_images": Param(0, "validate on the first so many images only; 0 is all"),
    },
    presets={"recipe": {"article": {"pipeline": "workers"}}},
    weights=pretrained,
    quality="accuracy",
    processes=True,
    unit="images",
    batch="max",
    cpu_batch=16,
    train_samples=samples_of,
    most_elements=most_elements,
    data=("cifar100",),
    # Range of 45 pairs of benchmarks/projection.py on a shared CPU; see docs/tested.md.
    projected_over_full=(0.895, 1.153),
)
