"""CIFAR-100 for the recipes `full` and `article`: augmentation, on the device or in DataLoader's worker processes."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.nn.functional import grid_sample, interpolate, pad
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision import transforms as t

from gpubench import Trial
from gpubench.data.datasets import load_cifar
from gpubench.training import Shard, layout, shards
from gpubench.training.device_images import Batch, DeviceImages, process_seed

from . import ARTICLE_VALID_IMAGES, CLASSES, TEST_IMAGES, TRAIN_IMAGES

SIZE, ARTICLE_SPLIT_SEED = 32, 42
Images = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Training images, uint8 (N, 3, 32, 32), their labels, int64 (N,), and test images with their labels."""
Sample = tuple[torch.Tensor, int]
STATISTICS = {
    "full": ((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)),
    "article": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.261)),
}
"""Mean and standard deviation by recipe; the article's are fastai 1's `cifar_stats`, of CIFAR-10."""


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
    """Return this process's share of each step.

    Training leaves out a single last image, which BatchNorm cannot train on; the article leaves out any incomplete
    last batch.
    """
    least = min(trial.batch_size, 2) if train else 1
    if train and trial.params.recipe == "article" and samples >= trial.batch_size * trial.case.processes:
        least = trial.batch_size
    return shards(
        samples, trial.batch_size, rank=trial.rank, world=trial.case.processes, least=least, evaluate=not train
    )


def crop_and_flip(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the images padded by 4, cropped to 32 at random, and flipped with probability 0.5; a batch at once."""
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


def article_transforms(images: torch.Tensor, size: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """Return images (N, 3, H, W) in [0, 1], resized and each changed at random, as `get_transforms()` of fastai 1 does.

    Flips have probability 0.5. The other changes have 0.75 each: warp up to 0.2, rotation up to 10 degrees, zoom up to
    1.1, brightness and contrast up to 0.2. Pixels move once, in one bilinear sampling that is padded by reflection.
    """
    count, device = len(images), images.device

    def draw(low: float, high: float, *shape: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, *shape, generator=generator, device=device)

    def drawn(probability: float) -> torch.Tensor:
        return torch.rand(count, 1, 1, generator=generator, device=device) < probability

    axis = torch.linspace(-1, 1, size, device=device)
    x, y = warp(axis.view(1, 1, size), axis.view(1, size, 1), draw(-0.2, 0.2, 4, 1, 1) * drawn(0.75)[:, None])
    zoom = torch.where(drawn(0.75), draw(1, 1.1, 1, 1), 1.0)
    x, y = (place / zoom + (1 - 1 / zoom) * draw(-1, 1, 1, 1) for place in (x, y))
    angle = draw(-10, 10, 1, 1) * drawn(0.75) * math.pi / 180
    x, y = x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()
    grid = torch.stack([torch.where(drawn(0.5), -x, x), y], dim=3)
    moved = grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=True)
    brightness = torch.where(drawn(0.75), draw(0.4, 0.6, 1, 1).logit(), 0.0)[:, None]
    contrast = torch.where(drawn(0.75), draw(math.log(0.8), math.log(1.25), 1, 1).exp(), 1.0)[:, None]
    return ((moved.logit(1e-7) + brightness) * contrast).sigmoid()


def warp(x: torch.Tensor, y: torch.Tensor, magnitude: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x and y, each (N, size, size), after the perspective that maps moved corners to the image's corners.

    `x` (1, 1, size) and `y` (1, size, 1) go from -1 to 1. `magnitude` (N, 4, 1, 1) is how far the right, left, bottom
    and top side move their corners.
    """
    right, left, bottom, top = magnitude.flatten(1).unbind(1)
    moved = ((-1 - top, -1 - left), (-1 - bottom, 1 + left), (1 + top, -1 - right), (1 + bottom, 1 + right))
    equations = []
    one, zero = torch.ones_like(top), torch.zeros_like(top)
    corners = ((-1, -1), (-1, 1), (1, -1), (1, 1))
    for (from_x, from_y), (to_x, to_y) in zip(moved, corners, strict=True):
        equations.append([from_x, from_y, one, zero, zero, zero, -to_x * from_x, -to_x * from_y])
        equations.append([zero, zero, zero, from_x, from_y, one, -to_y * from_x, -to_y * from_y])
    matrix = torch.stack([torch.stack(equation, 1) for equation in equations], 1)  # (N, 8, 8)
    target = torch.tensor(corners, dtype=x.dtype, device=x.device).view(8, 1)
    a, b, c, d, e, f, g, h = torch.linalg.solve(matrix, target.expand(len(matrix), 8, 1)).unsqueeze(3).unbind(1)
    depth = g * x + h * y + 1
    return (a * x + b * y + c) / depth, (d * x + e * y + f) / depth


def resized(images: torch.Tensor, size: int, recipe: str) -> torch.Tensor:
    """Return float images (N, 3, size, size). In the article, as in fastai 1, corner pixels stay at the corners."""
    return interpolate(images, size=(size, size), mode="bilinear", align_corners=recipe == "article")


def device_loader(images: torch.Tensor, labels: torch.Tensor, trial: Trial, *, augment: bool) -> DeviceImages:
    """Return batches that are transformed on the device, normalised, (batch, 3, image_size, image_size)."""
    params, device = trial.params, torch.device(trial.case.device)
    mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in STATISTICS[params.recipe])

    def prepare(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if augment and params.recipe == "full":
            images = crop_and_flip(images, generator)
        x = images.float().div_(255)
        if augment and params.recipe == "article":
            x = article_transforms(x, params.image_size, generator)
        elif params.image_size != SIZE:
            x = resized(x, params.image_size, params.recipe)
        return ((x - mean) / std).contiguous(memory_format=layout(trial.case))

    return DeviceImages((images, labels), shards_of(len(images), trial, augment), trial, prepare, shuffle=augment)


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


def collate(samples: list[Sample], layout: torch.memory_format) -> list[torch.Tensor]:
    """Return images and labels of a batch, in the layout of the weights."""
    images, labels = default_collate(samples)
    return [images.contiguous(memory_format=layout), labels]


def one_transformed(image: torch.Tensor, size: int, augment: bool) -> torch.Tensor:
    """Return one image (3, H, W) as the article trains or validates on it."""
    return (article_transforms(image[None], size) if augment else resized(image[None], size, "article"))[0]


class PilImages(Dataset[Sample]):
    """PIL images that are transformed on the CPU, one at a time."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, trial: Trial, augment: bool) -> None:
        params = trial.params
        transforms: list[object] = [t.ToTensor(), t.Normalize(*STATISTICS[params.recipe])]
        if params.recipe == "article":
            transforms.insert(1, partial(one_transformed, size=params.image_size, augment=augment))
        else:
            resize = [t.Resize((params.image_size, params.image_size))] if params.image_size != SIZE else []
            random = [t.RandomCrop(SIZE, padding=4), t.RandomHorizontalFlip()] if augment else []
            transforms = [*random, *resize, *transforms]
        self.transform = t.Compose(transforms)
        self.images = images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels = labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def worker_loader(images: torch.Tensor, labels: torch.Tensor, trial: Trial, *, augment: bool) -> Any:
    """Return a torch DataLoader whose worker processes transform PIL images one by one, as in the article."""
    dataset = PilImages(images, labels, trial, augment)
    batches = ShardedBatches(len(images), trial, augment)
    loader: Any = DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=trial.params.workers,
        pin_memory=trial.case.device.startswith("cuda"),
        collate_fn=partial(collate, layout=layout(trial.case)),
        generator=torch.Generator().manual_seed(process_seed(trial)),
    )
    loader.samples, loader.shards = len(images), batches.shards
    loader.device = torch.device(trial.case.device)  # without it fastai moves the model to its default device
    return loader
