"""CIFAR-100, and its two pipelines: batches made on the device, or by torch's DataLoader in worker processes."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.nn.functional import grid_sample, interpolate, pad
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision import transforms as t

from gpubench import Trial
from gpubench.data.datasets import load_cifar
from gpubench.training import Shard, layout, memory_format, shards

from . import ARTICLE_VALID_IMAGES, CLASSES, TEST_IMAGES, TRAIN_IMAGES

SIZE, ARTICLE_SPLIT_SEED = 32, 42
Images = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Training images, uint8 (N, 3, 32, 32), their labels, int64 (N,), and test images with their labels."""
Batch = tuple[torch.Tensor, torch.Tensor]
"""Images and labels."""
Sample = tuple[torch.Tensor, int]
MEAN, STD = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)


def load_images(trial: Trial) -> Images:
    """Return the dataset, or random images with random labels."""
    if trial.synthetic:
        generator = torch.Generator().manual_seed(trial.seed)
        train, valid = TRAIN_IMAGES, TEST_IMAGES
        if trial.params.recipe == "full":  # the article draws from all images
            train, valid = trial.params.train_images or train, trial.params.valid_images or valid
        images = torch.randint(0, 256, (train + valid, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
        labels = torch.randint(0, CLASSES, (train + valid,), generator=generator)
        return images[:train], labels[:train], images[train:], labels[train:]
    splits = load_cifar("cifar100", Path(trial.data_dir))
    train_x, train_y, test_x, test_y = (
        torch.from_numpy(array) for part in splits for array in (part.images, part.labels)
    )
    return train_x, train_y, test_x, test_y


def split(images: Images, trial: Trial) -> tuple[Batch, Batch]:
    """Return images and labels to train on and to validate on; the article validates on a fifth of both sets."""
    x, y, test_x, test_y = images
    if trial.params.recipe == "article":
        x, y = torch.cat([x, test_x]), torch.cat([y, test_y])
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(ARTICLE_SPLIT_SEED))
        held_out, kept = order[:ARTICLE_VALID_IMAGES], order[ARTICLE_VALID_IMAGES:]
        x, y, test_x, test_y = x[kept], y[kept], x[held_out], y[held_out]
    train, valid = trial.params.train_images or len(x), trial.params.valid_images or len(test_x)
    return (x[:train], y[:train]), (test_x[:valid], test_y[:valid])


def shards_of(samples: int, trial: Trial, train: bool) -> list[Shard]:
    """Return this process's share of each step; training leaves out a single last image, too few for a BatchNorm."""
    return shards(
        samples,
        trial.batch_size,
        rank=trial.rank,
        world=trial.case.processes,
        least=2 if train and trial.batch_size > 1 else 1,
        evaluate=not train,
    )


def process_seed(trial: Trial) -> int:
    """Return the seed of random transforms, which differs by process; the order of samples has the trial's seed."""
    return trial.seed + ((trial.rank + 1) << 32)


def crop_and_flip(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the images padded by 4, cropped to 32 at random, half of them flipped: all of a batch at once."""
    n, device = len(images), images.device
    rows = torch.randint(0, 9, (n, 1, 1, 1), generator=generator, device=device)
    columns = torch.randint(0, 9, (n, 1, 1, 1), generator=generator, device=device)
    rows = rows + torch.arange(SIZE, device=device).view(1, 1, SIZE, 1)
    columns = columns + torch.arange(SIZE, device=device).view(1, 1, 1, SIZE)
    flip = torch.rand((n, 1, 1, 1), generator=generator, device=device) < 0.5
    columns = torch.where(flip, columns.flip(3), columns)
    which = torch.arange(n, device=device).view(n, 1, 1, 1)
    channels = torch.arange(3, device=device).view(1, 3, 1, 1)
    return pad(images, (4, 4, 4, 4))[which, channels, rows, columns]


def article_transforms(images: torch.Tensor, size: int, generator: torch.Generator) -> torch.Tensor:
    """Return a batch after fastai 1's `get_transforms()`: flip, rotate, zoom, warp and lighting."""
    n, device = len(images), images.device

    def draw(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(n, 1, 1, generator=generator, device=device)

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


class DeviceLoader:
    """Batches made on the device from uint8 images in its memory, so that a fast card does not wait for the host.

    Yields normalised float images (batch, 3, image_size, image_size) and labels. Every process has all images, and
    takes its share of each step.
    """

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, trial: Trial, *, augment: bool) -> None:
        self.device = torch.device(trial.case.device)
        self.images, self.labels = images.to(self.device), labels.to(self.device)
        self.samples, self.augment = len(images), augment
        self.trial, self.shards = trial, shards_of(len(images), trial, augment)
        self.layout = layout(trial.case)
        self.order = torch.Generator(self.device).manual_seed(trial.seed)
        self.generator = torch.Generator(self.device).manual_seed(process_seed(trial))
        self.mean = torch.tensor(MEAN, device=self.device).view(1, 3, 1, 1)
        self.std = torch.tensor(STD, device=self.device).view(1, 3, 1, 1)

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[Batch]:
        order = (
            torch.randperm(self.samples, generator=self.order, device=self.device)
            if self.augment
            else torch.arange(self.samples, device=self.device)
        )
        for shard in self.shards:
            index = order[shard.start : shard.stop]
            yield self.prepare(self.images[index]), self.labels[index]

    def prepare(self, images: torch.Tensor) -> torch.Tensor:
        """Return the input of the model for uint8 images (N, 3, 32, 32)."""
        params = self.trial.params
        if self.augment and params.recipe == "full":
            images = crop_and_flip(images, self.generator)
        x = images.float().div_(255)
        if self.augment and params.recipe == "article":
            x = article_transforms(x, params.image_size, self.generator)
        elif params.image_size != SIZE:
            size = (params.image_size, params.image_size)
            x = interpolate(x, size=size, mode="bilinear", align_corners=False)
        x = (x - self.mean) / self.std
        return x.contiguous(memory_format=self.layout)


class ShardedBatches:
    """Indices of this process's share of each step, in an order that is the same for all processes."""

    def __init__(self, samples: int, trial: Trial, shuffle: bool) -> None:
        self.samples, self.shuffle = samples, shuffle
        self.shards = shards_of(samples, trial, shuffle)
        self.order = torch.Generator().manual_seed(trial.seed)

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.samples, generator=self.order) if self.shuffle else torch.arange(self.samples)
        for shard in self.shards:
            yield order[shard.start : shard.stop].tolist()


def collate(samples: list[Sample], memory_format: str) -> list[torch.Tensor]:
    """Return images and labels of a batch, in the layout of the weights."""
    images, labels = default_collate(samples)
    layout = torch.channels_last if memory_format == "channels_last" else torch.contiguous_format
    return [images.contiguous(memory_format=layout), labels]


class PilImages(Dataset[Sample]):
    """PIL images that are transformed on the CPU, one at a time."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, trial: Trial, augment: bool) -> None:
        params = trial.params
        resize = [t.Resize((params.image_size, params.image_size))] if params.image_size != SIZE else []
        random: list[nn.Module] = []
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

    def __getitem__(self, index: int) -> Sample:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def worker_loader(images: torch.Tensor, labels: torch.Tensor, trial: Trial, *, augment: bool) -> Any:
    """Return a torch DataLoader whose worker processes transform PIL images one by one, as in 2019."""
    dataset = PilImages(images, labels, trial, augment)
    batches = ShardedBatches(len(images), trial, augment)
    loader: Any = DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=trial.params.workers,
        pin_memory=trial.case.device.startswith("cuda"),
        collate_fn=partial(collate, memory_format=memory_format(trial.case)),
        generator=torch.Generator().manual_seed(process_seed(trial)),
    )
    loader.samples, loader.shards = len(images), batches.shards
    loader.device = torch.device(trial.case.device)  # fastai moves the model to its own default where a loader has none
    return loader
