"""CIFAR-10 in three parts, its images prepared one by one, and each process's share of a step."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms as t

from gpubench import Trial
from gpubench.data.datasets import load_cifar

from .recipe import CLASSES, SIZE, TEST_IMAGES, TRAIN_IMAGES, VALID_IMAGES

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images and labels."""
Sample = tuple[torch.Tensor, int]

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def load_images(trial: Trial) -> list[Part]:
    """Return images, uint8 (N, 32, 32, 3), and labels of three parts: training, validation (held out), test."""
    params = trial.params
    if trial.synthetic:
        generator = np.random.default_rng(trial.seed)
        count = TRAIN_IMAGES + VALID_IMAGES + TEST_IMAGES
        images = generator.integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)
        labels = generator.integers(0, CLASSES, count)
    else:
        splits = load_cifar("cifar10", Path(trial.data_dir))
        images = np.concatenate([split.images for split in splits]).transpose(0, 2, 3, 1)
        labels = np.concatenate([split.labels for split in splits])
    parts, start = [], 0
    for size, wanted in (
        (TRAIN_IMAGES, params.train_images),
        (VALID_IMAGES, params.valid_images),
        (TEST_IMAGES, params.test_images),
    ):
        part = slice(start, start + min(size, wanted or size))
        parts.append((np.ascontiguousarray(images[part]), labels[part]))
        start += size
    return parts


class Photos(Dataset[Sample]):
    """Images that are cropped, flipped and normalised one by one, in the process that loads them."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64], augment: bool) -> None:
        random = [t.RandomCrop(SIZE, padding=4), t.RandomHorizontalFlip()] if augment else []
        self.transform = t.Compose([*random, t.ToTensor(), t.Normalize(MEAN, STD)])
        self.images, self.labels = images, labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class Batches:
    """Indices of one process's share of each step. A step has `batch` images over all processes."""

    def __init__(self, samples: int, batch: int, seed: int, rank: int, ranks: int, shuffle: bool) -> None:
        self.samples, self.shuffle, self.rank, self.ranks = samples, shuffle, rank, ranks
        self.sizes = [min(batch, samples - start) for start in range(0, samples, batch)]
        if len(self.sizes) > 1 and self.sizes[-1] < 2 * ranks:
            rest = self.sizes.pop()  # too few for every BatchNorm; the clock scales the time
            if not shuffle:
                self.sizes[-1] += rest
        self.generator = torch.Generator().manual_seed(seed)  # the same order in all processes

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.samples, generator=self.generator) if self.shuffle else torch.arange(self.samples)
        start = 0
        for size in self.sizes:
            yield order[start + self.rank : start + size : self.ranks].tolist()
            start += size
