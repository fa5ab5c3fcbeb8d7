"""Where images are cut: random crops, validation squares and rectangles, and batches of one shape. Plain arithmetic."""

import math
import random
from collections.abc import Iterator, Sequence


def random_box(size: tuple[int, int], min_scale: float, dice: random.Random) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of a random crop: the method of torchvision's RandomResizedCrop.

    Its area is a share from `min_scale` to 1 of the image's, its shape between 3:4 and 4:3.
    """
    width, height = size
    for _ in range(10):
        area = width * height * dice.uniform(min_scale, 1.0)
        ratio = math.exp(dice.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = dice.randint(0, width - w), dice.randint(0, height - h)
            return left, top, left + w, top + h
    # None fitted: as much of the middle as has an allowed shape.
    ratio = min(max(width / height, 3 / 4), 4 / 3)
    w, h = min(width, round(height * ratio)), min(height, round(width / ratio))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


ZOOM = 1.14
"""How much larger than the crop a validation image's shorter side is made: 256 for 224."""
STEP = 32
"""Sides of validation rectangles are multiples of it, so that few shapes occur; a ResNet divides by it."""
LONGEST = 2.0
"""Most that a validation rectangle is longer than wide."""


def rectangle(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Width and height of the validation crop of an image of (width, height), which depends on nothing else.

    The shorter side is `side`; the longer one keeps the image's shape, cut to a multiple of 32.
    """
    width, height = size
    longer = min(int(LONGEST * side), side * max(width, height) // min(width, height))
    longer = max(side, longer // STEP * STEP)
    return (longer, side) if width >= height else (side, longer)


def centre_box(size: tuple[int, int], crop: tuple[int, int]) -> tuple[float, float, float, float]:
    """The box of an image that becomes a centre crop of (width, height) after its sides were made ZOOM times larger.

    An image that is too narrow for that gives as much as it has.
    """
    width, height = size
    scale = max(min(crop) * ZOOM / min(width, height), crop[0] / width, crop[1] / height)
    w, h = min(width, crop[0] / scale), min(height, crop[1] / scale)
    left, top = (width - w) / 2, (height - h) / 2
    return left, top, left + w, top + h


def batches_by_shape(shapes: Sequence[tuple[int, int]], batch: int) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """(shape, indices of up to `batch` images of that shape), every image once."""
    by_shape: dict[tuple[int, int], list[int]] = {}
    for index, shape in enumerate(shapes):
        by_shape.setdefault(shape, []).append(index)
    for shape in sorted(by_shape):
        indices = by_shape[shape]
        for start in range(0, len(indices), batch):
            yield shape, indices[start : start + batch]
