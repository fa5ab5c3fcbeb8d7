"""Reads CIFAR-10 or makes random images; makes batches (crops, flips, cutout, brightness) in one of four pipelines."""

import math
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import interpolate
from torch.nn.functional import pad as padded
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as t

from gpubench import Trial
from gpubench.data.datasets import load_cifar

from .optimizers import compile_once
from .recipe import CLASSES, MEAN, RECIPES, SIZE, STD, TEST_BATCH, TEST_IMAGES, TRAIN_IMAGES, Recipe, stage_at

Sample = tuple[torch.Tensor | NDArray[np.float32], int]
Batch = tuple[torch.Tensor, ...]
"""Images and labels on the device. In training the images' indices in the dataset follow, if the recipe needs them. In
a second evaluation the logits of the first one follow."""


class Images(NamedTuple):
    """Images, uint8 (N, 3, 32, 32), and labels, int64 (N,), of training and test."""

    train: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]


def load_images(trial: Trial) -> Images:
    """Return the dataset or random images: in device memory if the rung prepares them there (pipeline `device`)."""
    counts = trial.params.train_images or TRAIN_IMAGES, trial.params.valid_images or TEST_IMAGES
    if trial.synthetic:
        images = noise_images(counts, trial.seed)
    else:
        splits = load_cifar("cifar10", Path(trial.data_dir))
        train, test = (
            (torch.from_numpy(split.images[:count]), torch.from_numpy(split.labels[:count]))
            for split, count in zip(splits, counts, strict=True)
        )
        images = Images(train, test)
    device = trial.case.device if RECIPES[trial.case.model].pipeline == "device" else "cpu"
    return Images(*((x.to(device), y.to(device)) for x, y in images))


def noise_images(counts: tuple[int, int], seed: int) -> Images:
    """Return random images with random labels; `counts` of training and of test."""
    generator = torch.Generator().manual_seed(seed)
    x, test_x = (
        torch.randint(0, 256, (count, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator) for count in counts
    )
    y, test_y = (torch.randint(0, CLASSES, (count,), generator=generator) for count in counts)
    return Images((x, y), (test_x, test_y))


@cache
def statistics(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and standard deviation of the bytes, (1, 3, 1, 1). Cached: a copy would wait for the device."""
    mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (MEAN, STD))
    return mean, std


def normalised(images: torch.Tensor, pad: int) -> torch.Tensor:
    """Return uint8 images (N, 3, 32, 32) as float32 of mean 0 and variance 1, padded by `pad` mirrored pixels."""
    mean, std = statistics(images.device)
    x = (images.float() - mean) / std
    return padded(x, (pad, pad, pad, pad), mode="reflect") if pad else x


def draws(n: int, recipe: Recipe, generator: torch.Generator | None = None) -> torch.Tensor:
    """Return (n, 3 or 5): row and column of each sample's crop, whether to flip it, row and column of a hole if any."""
    device = generator.device if generator else None
    ends = [2 * recipe.pad + 1, 2 * recipe.pad + 1, 2]
    ends += [SIZE + 1 - recipe.cutout] * 2 if recipe.cutout else []
    return torch.stack([torch.randint(end, (n,), generator=generator, device=device) for end in ends], 1)


def layout(images: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """Return `images` in the layout of the recipe's weights."""
    return images.contiguous(memory_format=torch.channels_last if recipe.channels_last else torch.contiguous_format)


class Batches:
    """The base of the pipelines: `samples` samples in batches of images and labels on the device."""

    def __init__(self, samples: int, batch: int) -> None:
        self.samples, self.batch = samples, batch

    def __len__(self) -> int:
        return -(-self.samples // self.batch)

    def steps_of(self, epoch: int) -> int:
        """Return the number of batches in an epoch."""
        return len(self)

    def begin(self, epoch: int) -> None:
        """Prepare an epoch of training."""

    def __iter__(self) -> Iterator[Batch]:
        raise NotImplementedError


class PilImages(Dataset[Sample]):
    """PIL images that torchvision transforms at each use, as in the DAWNBench entry (bkj/basenet, 2018)."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, recipe: Recipe, augment: bool) -> None:
        random = [t.RandomCrop(SIZE, padding=recipe.pad, padding_mode="reflect"), t.RandomHorizontalFlip()]
        mean, std = ([value / 255 for value in values] for values in (MEAN, STD))
        self.transform = t.Compose([*(random if augment else []), t.ToTensor(), t.Normalize(mean, std)])
        self.images = images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels, self.augment = labels.tolist(), augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class Prepared(Dataset[Sample]):
    """Arrays that were padded and normalised once; each sample is only cropped, flipped and given a hole (cutout)."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, recipe: Recipe, augment: bool) -> None:
        self.images = normalised(images, recipe.pad if augment else 0).numpy()
        self.labels, self.augment, self.recipe = labels.tolist(), augment, recipe
        self.drawn: list[list[int]] = []

    def begin_epoch(self) -> None:
        """Draw random numbers for all samples at once, if the rung does."""
        if self.augment and self.recipe.pipeline == "drawn":
            self.drawn = draws(len(self), self.recipe).tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        image = self.images[index]
        if self.augment:
            row, column, flip, *hole = self.drawn[index] if self.drawn else draws(1, self.recipe)[0].tolist()
            image = image[:, row : row + SIZE, column : column + SIZE]
            image = (image[:, :, ::-1] if flip else image).copy()
            if hole:
                top, left = hole
                image[:, top : top + self.recipe.cutout, left : left + self.recipe.cutout] = 0
        return image, self.labels[index]


class FromLoader(Batches):
    """Batches of torch's DataLoader over single samples, in worker processes or in this one."""

    def __init__(self, dataset: PilImages | Prepared, recipe: Recipe, trial: Trial, device: torch.device) -> None:
        super().__init__(len(dataset), trial.batch_size if dataset.augment else TEST_BATCH)
        self.dataset, self.device = dataset, device
        workers = {"per-sample": trial.params.workers, "prepared": 1, "drawn": 0}[recipe.pipeline]
        self.loader = DataLoader(
            dataset,
            batch_size=self.batch,
            shuffle=dataset.augment,
            num_workers=workers,
            persistent_workers=recipe.pipeline == "prepared",
            pin_memory=device.type == "cuda",
            generator=torch.Generator().manual_seed(trial.seed),
        )

    def __iter__(self) -> Iterator[Batch]:
        if isinstance(self.dataset, Prepared):
            self.dataset.begin_epoch()
        for x, y in self.loader:
            yield x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)


class OnDevice(Batches):
    """Padded and normalised images in device memory. All images of a batch are cropped and flipped together."""

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
        images, labels = part
        super().__init__(len(images), trial.batch_size if augment else TEST_BATCH)
        self.whole_only = augment and not recipe.part_batch and self.samples > self.batch
        self.recipe, self.augment, self.dtype, self.bytes = recipe, augment, dtype, images.to(device)
        self.compiled = trial.params.compile
        self.epoch, self.epochs, self.edge = 0, trial.params.epochs or recipe.epochs, 0
        self.losses = torch.full((self.samples,), math.inf, device=device)
        """The loss of each image when it was last trained on."""
        self.begin(0)
        self.labels = labels.to(device)
        self.generator = torch.Generator(device).manual_seed(trial.seed)
        self.sides = torch.randint(2, (self.samples,), generator=self.generator, device=device)

    def __len__(self) -> int:
        return self.steps_of(self.epoch)

    def steps_of(self, epoch: int) -> int:
        """Return the number of batches in an epoch."""
        samples = self.kept(epoch)
        return max(1, samples // self.batch) if self.whole_only else -(-samples // self.batch)

    def kept(self, epoch: int) -> int:
        """Return the number of images in an epoch."""
        return round(self.samples * stage_at(self.recipe, epoch, self.epochs).share) if self.augment else self.samples

    def begin(self, epoch: int) -> None:
        """Resize all images to the epoch's size, normalise and pad them, unless they have that size already."""
        self.epoch, before = epoch, self.edge
        self.edge = stage_at(self.recipe, epoch, self.epochs).edge if self.augment else SIZE
        if self.edge == before:
            return
        x = normalised(self.bytes, 0)
        if self.edge != SIZE:
            x = interpolate(x, (self.edge, self.edge), mode="bilinear", antialias=True)
        if self.augment and self.recipe.pad:
            x = padded(x, (self.recipe.pad,) * 4, mode="reflect")
        self.images = x.to(self.dtype)

    def __iter__(self) -> Iterator[Batch]:
        if not self.augment:
            for x, y in zip(self.images.split(self.batch), self.labels.split(self.batch), strict=True):
                yield layout(x, self.recipe), y
            return
        drawn = draws(self.samples, self.recipe, self.generator)
        if self.recipe.alternate:
            drawn[:, 2] = (self.sides + self.epoch) % 2
        light, cut = self.light(), compile_once(cut_out) if self.compiled else cut_out
        for index in self.order().split(self.batch)[: len(self)]:
            images, labels = cut(self.images, self.labels, index, drawn, light, self.edge, self.recipe)
            yield (images, labels, index) if self.recipe.leave_out else (images, labels)

    def order(self) -> torch.Tensor:
        """Return indices of the epoch's images in random order: all, or the harder half and some of the easier half."""
        kept = self.kept(self.epoch)
        if kept == self.samples:
            return self.shuffled(torch.arange(self.samples, device=self.labels.device))
        easier, harder = self.losses.argsort().split([self.samples // 2, self.samples - self.samples // 2])
        few = kept - len(harder)
        return self.shuffled(torch.cat([self.shuffled(easier)[:few], harder]))

    def shuffled(self, places: torch.Tensor) -> torch.Tensor:
        """Return `places` in random order."""
        return places[torch.randperm(len(places), generator=self.generator, device=places.device)]

    def light(self) -> torch.Tensor | None:
        """Return what to add to each image of an epoch, and the factor to multiply it by, (2, N); None: no change."""
        if not (self.recipe.brightness or self.recipe.contrast):
            return None
        both = 2 * torch.rand((2, self.samples), generator=self.generator, device=self.labels.device) - 1
        return torch.stack([both[0] * self.recipe.brightness, 1 + both[1] * self.recipe.contrast]).to(self.dtype)


def cut_out(
    images: torch.Tensor,
    labels: torch.Tensor,
    index: torch.Tensor,
    drawn: torch.Tensor,
    light: torch.Tensor | None,
    edge: int,
    recipe: Recipe,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images and labels of the batch `index`: cropped to edge x edge, flipped, with a hole, and with `light`.

    Args:
        images: the whole dataset, (N, 3, H, W); its `labels` are (N,).
        labels: see `images`.
        index: the images of the batch.
        drawn: of the whole dataset; see `draws`.
        light: of the whole dataset; see `OnDevice.light`.
        edge: in pixels.
        recipe: has the size of the hole, and the layout of the batch.
    """
    windows = images.unfold(2, edge, 1).unfold(3, edge, 1)  # a view: every crop of every image
    row, column, flip, *hole = drawn[index].unbind(1)
    x = windows[index, :, row, column]
    x = torch.where(flip.view(-1, 1, 1, 1) > 0, x.flip(3), x)
    if hole:
        axis = torch.arange(edge, device=x.device)
        (down, across) = ((axis >= start[:, None]) & (axis < start[:, None] + recipe.cutout) for start in hole)
        x = x.masked_fill((down[:, :, None] & across[:, None, :])[:, None], 0)
    if light is not None:
        more, times = light[:, index, None, None, None]
        x = (x + more) * times
    return layout(x, recipe), labels[index]


class Doubtful(Batches):
    """The test images that were predicted least certainly, with their labels and the logits of that prediction."""

    def __init__(self, tests: OnDevice, outputs: list[tuple[torch.Tensor, torch.Tensor]], share: float) -> None:
        super().__init__(max(1, int(tests.samples * share)), TEST_BATCH // 2)
        self.tests, self.outputs = tests, outputs

    def __iter__(self) -> Iterator[Batch]:
        logits, labels = (torch.cat(tensors) for tensors in zip(*self.outputs, strict=True))
        few = min(self.samples, len(logits))
        chosen = logits.softmax(1).amax(1).topk(few, largest=False).indices
        for index in chosen.split(self.batch):
            yield layout(self.tests.images[index], self.tests.recipe), labels[index], logits[index]


def pipelines(images: Images, recipe: Recipe, trial: Trial, dtype: torch.dtype) -> tuple[Batches, Batches]:
    """Return the rung's batches to train on and to evaluate. Images of the pipeline `device` have `dtype`."""
    device = torch.device(trial.case.device)
    if recipe.pipeline == "device":
        make = partial(OnDevice, recipe=recipe, trial=trial, device=device, dtype=dtype)
        return make(images.train, augment=True), make(images.test, augment=False)
    kind = PilImages if recipe.pipeline == "per-sample" else Prepared
    trained = FromLoader(kind(*images.train, recipe, True), recipe, trial, device)
    return trained, FromLoader(kind(*images.test, recipe, False), recipe, trial, device)
