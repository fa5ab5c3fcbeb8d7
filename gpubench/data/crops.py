"""Computes crop boxes: random crops, validation squares and rectangles; groups images into batches by shape."""

import math
import random
from collections.abc import Iterator, Sequence


def random_box(size: tuple[int, int], min_scale: float, dice: random.Random) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of a random crop, by the method of torchvision's RandomResizedCrop.

    The crop has `min_scale` to 1 of the image's area, and an aspect ratio between 3:4 and 4:3.
    """
    width, height = size
    for _ in range(10):
        area = width * height * dice.uniform(min_scale, 1.0)
        ratio = math.exp(dice.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = dice.randint(0, width - w), dice.randint(0, height - h)
            return left, top, left + w, top + h
    # No random crop fitted: use the largest centre crop with an allowed aspect ratio.
    ratio = min(max(width / height, 3 / 4), 4 / 3)
    w, h = min(width, round(height * ratio)), min(height, round(width / ratio))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


ZOOM = 1.14
"""Shorter side of a resized validation image over the side of its crop: 256 for 224."""
STEP = 32
"""A non-square rectangle's longer side is a multiple of this: ResNets divide it by 32, and there are few shapes."""
LONGEST = 2.0
"""Largest aspect ratio of a validation rectangle."""


def rectangle(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Return width and height of the validation crop of an image of (width, height).

    The shorter side is `side`. The longer side has the image's aspect ratio (at most LONGEST), but is rounded down to a
    multiple of STEP.
    """
    width, height = size
    longer = min(int(LONGEST * side), side * max(width, height) // min(width, height))
    longer = max(side, longer // STEP * STEP)
    return (longer, side) if width >= height else (side, longer)


def centre_box(size: tuple[int, int], crop: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return the box (left, top, right, bottom) that becomes the centre crop (width, height) of an image.

    It is computed as if the image were first resized so that its shorter side is ZOOM times the crop's shorter side. If
    the crop does not fit into the resized image, the box is as large as possible.
    """
    width, height = size
    scale = max(min(crop) * ZOOM / min(width, height), crop[0] / width, crop[1] / height)
    w, h = min(width, crop[0] / scale), min(height, crop[1] / scale)
    left, top = (width - w) / 2, (height - h) / 2
    return left, top, left + w, top + h


def batches_by_shape(shapes: Sequence[tuple[int, int]], batch: int) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """Yield batches of images of equal shape: (shape, indices of up to `batch` images), each image once."""
    by_shape: dict[tuple[int, int], list[int]] = {}
    for index, shape in enumerate(shapes):
        by_shape.setdefault(shape, []).append(index)
    for shape in sorted(by_shape):
        indices = by_shape[shape]
        for start in range(0, len(indices), batch):
            yield shape, indices[start : start + batch]
