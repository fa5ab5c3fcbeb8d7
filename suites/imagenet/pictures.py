"""What loader processes run: reads files, crops and flips them, returns batches of uint8 images."""

import io
import random
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
import torchvision.io
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset

from gpubench.data import crops, images
from gpubench.data.images import Made, Spec

Decoder = Callable[[bytes], Image.Image]


def decode_jpeg(content: bytes) -> Image.Image:
    """Return a JPEG decoded by torchvision, in a third of PIL's time; raises RuntimeError for a broken file."""
    encoded = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    pixels = torchvision.io.decode_jpeg(encoded, torchvision.io.ImageReadMode.RGB)
    return Image.fromarray(pixels.permute(1, 2, 0).numpy())


def find_decoder() -> tuple[Decoder | None, str]:
    """Return torchvision's decoder; or None and a remark for the row, because PIL is slower.

    It is tried once with a JPEG made here: torchvision 0.29 deprecates its decoders, and a missing one, or one without
    libjpeg, must not look like a folder of broken files.
    """
    jpeg = io.BytesIO()
    Image.new("RGB", (8, 8)).save(jpeg, "JPEG")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the deprecation
            decode_jpeg(jpeg.getvalue())
    except Exception as error:  # whatever it is, PIL can decode
        why = str(error).partition("\n")[0][:80]
        return None, f"torchvision decodes no JPEG ({type(error).__name__}: {why}): PIL did, which takes longer"
    return decode_jpeg, ""


class Pictures(Dataset[Made]):
    """A dataset whose items are batches of uint8 images; it has no state, so one pool serves all phases."""

    def __init__(self, tree: images.Tree, copies: Mapping[int, Path], decode: Decoder | None) -> None:
        self.splits = {"train": tree.train, "valid": tree.valid}
        self.roots = {0: tree.root, **copies}
        self.decode = decode

    def __getitem__(self, spec: Spec) -> Made:
        many = len(spec.indices)
        x = np.empty((many, spec.height, spec.width, 3), dtype=np.uint8)
        split = self.splits[spec.split]
        made = Made(torch.from_numpy(x), torch.empty(many, dtype=torch.int64))
        for place, index in enumerate(spec.indices):
            dice = None if spec.dice is None else random.Random((spec.dice << 32) + index)
            x[place], used = self.picture(spec, split, index, dice, made)
            made.y[place] = int(split.labels[used])
        return made

    def picture(
        self, spec: Spec, split: images.Split, index: int, dice: random.Random | None, made: Made
    ) -> tuple[NDArray[np.uint8], int]:
        """Return the image's pixels and its index; in training a bad file is replaced by the next good one."""
        for step in range(len(split)):
            at = (index + step) % len(split)
            file = split.path(at)
            try:
                image, mode = images.open_image(self.roots[spec.copies] / file, self.decode)
            except images.BadImage as error:
                made.bad.append((file, str(error)))
                if dice is None:
                    return np.zeros((spec.height, spec.width, 3), dtype=np.uint8), at
                continue
            if mode != "RGB":
                made.odd.append((file, mode))
            size = (spec.width, spec.height)
            if dice is None:
                box = crops.centre_box(image.size, size)
                return np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=box)), at
            cut = crops.random_box(image.size, spec.min_scale, dice)
            pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=cut))
            return pixels[:, ::-1] if dice.random() < 0.5 else pixels, at
        return np.zeros((spec.height, spec.width, 3), dtype=np.uint8), index  # the parent sees that all are bad
