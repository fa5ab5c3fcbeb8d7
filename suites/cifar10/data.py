"""The images: read, or made up; and the four ways of a rung to make batches of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import pad as padded
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as t

from gpubench import Trial
from gpubench.data.datasets import load_cifar

from .recipe import CLASSES, MEAN, RECIPES, SIZE, STD, TEST_BATCH, TEST_IMAGES, TRAIN_IMAGES, Recipe

Sample = tuple[torch.Tensor | NDArray[np.float32], int]
Batch = tuple[torch.Tensor, ...]
"""Images and labels on the device, and after them the logits of a first look where there was one."""


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
    on_device = RECIPES[trial.case.model].pipeline == "device"
    return read_images(trial).to(torch.device(trial.case.device if on_device else "cpu"))


def read_images(trial: Trial) -> Images:
    """The same in the host's memory."""
    few, few_tests = trial.params.train_images or TRAIN_IMAGES, trial.params.valid_images or TEST_IMAGES
    if trial.synthetic:
        return noise_images(few, few_tests, torch.Generator().manual_seed(trial.seed))
    train, test = load_cifar("cifar10", Path(trial.data_dir))
    return Images(
        (torch.from_numpy(train.images[:few]), torch.from_numpy(train.labels[:few])),
        (torch.from_numpy(test.images[:few_tests]), torch.from_numpy(test.labels[:few_tests])),
    )


def noise_images(many: int, tests: int, dice: torch.Generator) -> Images:
    """Random images with random labels."""
    x, test_x = (torch.randint(0, 256, (n, 3, SIZE, SIZE), dtype=torch.uint8, generator=dice) for n in (many, tests))
    y, test_y = (torch.randint(0, CLASSES, (n,), generator=dice) for n in (many, tests))
    return Images((x, y), (test_x, test_y))


def normalised(images: torch.Tensor, pad: int) -> torch.Tensor:
    """uint8 (N, 3, 32, 32) to float32 of mean 0 and variance 1, with `pad` mirrored pixels around."""
    mean, std = (torch.tensor(values, device=images.device).view(1, 3, 1, 1) for values in (MEAN, STD))
    x = (images.float() - mean) / std
    return padded(x, (pad, pad, pad, pad), mode="reflect") if pad else x


def draws(n: int, recipe: Recipe, dice: torch.Generator | None = None) -> torch.Tensor:
    """For each of `n` samples: row and column of the crop, whether to flip, row and column of the hole if any."""
    device = dice.device if dice else None
    ends = [2 * recipe.pad + 1, 2 * recipe.pad + 1, 2]
    ends += [SIZE + 1 - recipe.cutout] * 2 if recipe.cutout else []
    return torch.stack([torch.randint(end, (n,), generator=dice, device=device) for end in ends], 1)


def layout(images: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """`images` in the layout of the recipe's weights."""
    return images.contiguous(memory_format=torch.channels_last if recipe.channels_last else torch.contiguous_format)


class Batches:
    """What both kinds of pipeline are: so many samples, in batches of images and labels on the device."""

    def __init__(self, samples: int, batch: int) -> None:
        self.samples, self.batch = samples, batch

    def __len__(self) -> int:
        return -(-self.samples // self.batch)

    def __iter__(self) -> Iterator[Batch]:
        raise NotImplementedError


class PilImages(Dataset[Sample]):
    """PIL images that go through torchvision's transforms each time they are used, as in the entry of 2018."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, recipe: Recipe, augment: bool) -> None:
        random = [t.RandomCrop(SIZE, padding=recipe.pad, padding_mode="reflect"), t.RandomHorizontalFlip()]
        mean, std = ([value / 255 for value in values] for values in (MEAN, STD))
        self.transform = t.Compose([*(random if augment else []), t.ToTensor(), t.Normalize(mean, std)])
        self.images = images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels, self.augment = labels.tolist(), augment

    def begin_epoch(self) -> None:
        """Nothing is drawn ahead."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class Prepared(Dataset[Sample]):
    """Arrays that were padded and normalised once; each sample is only cropped, flipped and cut out."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, recipe: Recipe, augment: bool) -> None:
        self.images = normalised(images, recipe.pad if augment else 0).numpy()
        self.labels, self.augment, self.recipe = labels.tolist(), augment, recipe
        self.drawn: list[list[int]] = []

    def begin_epoch(self) -> None:
        """Draw for all samples at once, on the rungs that do."""
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
        self.dataset.begin_epoch()
        for x, y in self.loader:
            yield x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)


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

    def __iter__(self) -> Iterator[Batch]:
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

    def __init__(self, tests: OnDevice, found: list[tuple[torch.Tensor, torch.Tensor]], share: float) -> None:
        super().__init__(int(tests.samples * share), TEST_BATCH // 2)
        self.tests, self.found = tests, found

    def __iter__(self) -> Iterator[Batch]:
        logits, labels = (torch.cat(each) for each in zip(*self.found, strict=True))
        few = min(self.samples, len(logits))
        chosen = logits.softmax(1).amax(1).topk(few, largest=False).indices
        for index in chosen.split(self.batch):
            yield layout(self.tests.images[index], self.tests.recipe), labels[index], logits[index]


def pipelines(images: Images, recipe: Recipe, trial: Trial, dtype: torch.dtype) -> tuple[Batches, Batches]:
    """Batches to train on and to evaluate, prepared as the rung does it; yields images of `dtype` and labels."""
    device = torch.device(trial.case.device)
    if recipe.pipeline == "device":
        make = partial(OnDevice, recipe=recipe, trial=trial, device=device, dtype=dtype)
        return make(images.train, augment=True), make(images.test, augment=False)
    kind = PilImages if recipe.pipeline == "per-sample" else Prepared
    trained = FromLoader(kind(*images.train, recipe, True), recipe, trial, device)
    return trained, FromLoader(kind(*images.test, recipe, False), recipe, trial, device)
