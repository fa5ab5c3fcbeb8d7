"""Trees of images: finds, splits and names them, reads their sizes, and makes resized copies. Never imports torch.

A tree is what torchvision's ImageFolder reads: `train/CLASS/*.jpg` and `val/CLASS/*.jpg`, or `CLASS/*.jpg`
alone, which is split here by a seeded rule.
"""

import hashlib
import io
import json
import os
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm")
VALIDATION_FOLDERS = ("val", "valid", "validation")
SPLIT_SEED = 42
HELD_OUT = 5
"""One image in so many of each class validates where a tree has no validation folder."""
MOST_PIXELS = 2**26
"""An image with more is refused before it is decoded: 67 million pixels take 200 MB."""
QUALITY = 90
"""Of the JPEG copies."""
IMAGENET = (1000, 1_281_167, 50_000)
"""Classes, training and validation images of ILSVRC 2012."""


FAULTS = (AttributeError, ImportError, NameError)
"""What a program raises that asks for what a library has not, and no file."""


class BadImage(Exception):
    """An image that cannot be used, and why."""


@dataclass(frozen=True)
class Split:
    """Files, relative to the tree, and their classes, in one array each: worker processes share its memory."""

    paths: "NDArray[np.bytes_]"
    labels: "NDArray[np.int64]"

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> str:
        """The file's path below the tree's root."""
        return os.fsdecode(bytes(self.paths[index]))


@dataclass(frozen=True)
class Tree:
    """A folder of images, read but not opened."""

    root: Path
    classes: tuple[str, ...]
    train: Split
    valid: Split

    @property
    def name(self) -> str:
        """What rows call it: `imagenet`, or its counts and a digest of file names and sizes."""
        counts = (len(self.classes), len(self.train), len(self.valid))
        if counts == IMAGENET and all(each[:1] == "n" and each[1:].isdecimal() for each in self.classes):
            return "imagenet"
        digest = hashlib.sha256()
        for split in (self.train, self.valid):
            for index in range(len(split)):
                path = split.path(index)
                size = (self.root / path).stat().st_size
                digest.update(f"{path}\0{size}\0".encode(errors="surrogateescape"))
        return f"tree-{counts[0]}-{counts[1]}-{digest.hexdigest()[:8]}"


# The tree


def read_tree(root: Path) -> Tree:
    """The tree at `root`; raises UserError saying what a tree looks like where it is none."""
    try:
        if (root / "train").is_dir():
            return _divided(root)
        return _flat(root)
    except OSError as error:
        raise UserError(f"{error.filename or root}: cannot be read ({error.strerror})") from None


def find_tree(root: Path) -> Path | None:
    """`root / imagenet` or `root` itself, where there is a tree; else None."""
    for place in (root / "imagenet", root):
        if (place / "train").is_dir() or _has_class(place):
            return place
    return None


def _has_class(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    for entry in os.scandir(folder):
        if _is_class(entry) and any(name.lower().endswith(ENDINGS) for name in _few(entry.path)):
            return True
    return False


def _few(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry, _ in zip(entries, range(100), strict=False)]


def _divided(root: Path) -> Tree:
    folder = next((name for name in VALIDATION_FOLDERS if (root / name).is_dir()), None)
    if folder is None:
        raise UserError(f"{root} has train/ but no val/; add val/CLASS/*.jpg, or give a folder of class folders")
    train, valid = _files_of(root, "train"), _files_of(root, folder)
    classes = sorted(train)
    if unknown := sorted(set(valid) - set(train)):
        raise UserError(f"{root / folder / unknown[0]}: a class without training images; add some or remove it")
    return _tree(root, classes, train, valid)


def _flat(root: Path) -> Tree:
    train, valid = {}, {}
    for name, files in _files_of(root, "").items():
        shuffled = sorted(files)
        random.Random(f"{SPLIT_SEED} {name}").shuffle(shuffled)
        held_out = max(1, len(shuffled) // HELD_OUT)
        if len(shuffled) < 2:
            raise UserError(f"{root / name}: one image cannot be split into training and validation; add some")
        train[name], valid[name] = sorted(shuffled[held_out:]), sorted(shuffled[:held_out])
    return _tree(root, sorted(train), train, valid)


def _files_of(root: Path, part: str) -> dict[str, list[str]]:
    """Images by class, in the class folders of `root / part`, as paths below `root`."""
    found = {}
    for entry in sorted((entry.name, entry.path) for entry in os.scandir(root / part) if _is_class(entry)):
        name, folder = entry
        files = [
            os.path.relpath(Path(where) / file, root)
            for where, _, names in os.walk(folder)
            for file in names
            if file.lower().endswith(ENDINGS) and not file.startswith(".")
        ]
        if files:
            found[name] = sorted(files)
    return found


def _is_class(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _tree(root: Path, classes: Sequence[str], train: dict[str, list[str]], valid: dict[str, list[str]]) -> Tree:
    if not classes or not any(valid.values()):
        raise UserError(
            f"{root}: no tree of images; it needs train/CLASS/*.jpg and val/CLASS/*.jpg, or CLASS/*.jpg"
            f" (endings: {' '.join(ENDINGS)})"
        )
    return Tree(root, tuple(classes), _split(classes, train), _split(classes, valid))


def _split(classes: Sequence[str], files: dict[str, list[str]]) -> Split:
    import numpy as np

    labels = [number for number, name in enumerate(classes) for _ in files.get(name, ())]
    paths = [os.fsencode(path) for name in classes for path in files.get(name, ())]
    return Split(np.array(paths, dtype=np.bytes_), np.array(labels, dtype=np.int64))


def shown(path: str) -> str:
    """A file's name for rows and screens: what is no UTF-8 in it is escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


# One image


def open_image(path: str | Path, decode: Callable[[bytes], "Image"] | None = None) -> tuple["Image", str]:
    """The image as RGB, decoded, and its mode in the file.

    Grey, CMYK and other modes are converted, as torchvision's ImageFolder does. `decode` may be a faster way for
    the bytes of an RGB JPEG; what it refuses, PIL tries. Raises BadImage with the reason where the file is
    missing, broken or too large. What only a program can have wrong goes through: no file is bad because a
    library has lost a function.
    """
    from PIL import Image

    # Our own limit, below, comes before PIL's, which only warns.
    Image.MAX_IMAGE_PIXELS = None
    try:
        content = Path(path).read_bytes()
        with warnings.catch_warnings(), Image.open(io.BytesIO(content)) as image:
            warnings.simplefilter("ignore")  # of odd metadata, say; what cannot be decoded raises
            _check_size(image.size)
            if decode and image.format == "JPEG" and image.mode == "RGB":
                with suppress(RuntimeError):
                    return decode(content), "RGB"
            return image.convert("RGB"), image.mode
    except (BadImage, *FAULTS):
        raise
    except Exception as error:  # a broken file may raise nearly anything
        raise BadImage(_why(error)) from None


def size_of(path: str | Path) -> tuple[int, int]:
    """Width and height from the header alone; raises BadImage."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    try:
        with Image.open(path) as image:
            _check_size(image.size)
            return image.size
    except (BadImage, *FAULTS):
        raise
    except Exception as error:
        raise BadImage(_why(error)) from None


def _check_size(size: tuple[int, int]) -> None:
    width, height = size
    if width * height > MOST_PIXELS:
        raise BadImage(f"too large: {width} x {height} pixels, and {MOST_PIXELS} is the most")


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "not there"
    text = str(error)
    if "truncated" in text or "Truncated" in text:
        return "truncated"
    if isinstance(error, OSError) and ("cannot identify" in text or "broken" in text or not text):
        return "no image, or broken"
    return f"{type(error).__name__}: {text.partition(chr(10))[0][:80]}"


def sizes_of(files: Sequence[Path], threads: int = 8) -> list[tuple[int, int] | None]:
    """(width, height) of each file; None for a bad one."""

    def size(path: Path) -> tuple[int, int] | None:
        try:
            return size_of(path)
        except BadImage:
            return None

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(size, files))


# Resized copies


def copies_folder(cache: Path, name: str, size: int) -> Path:
    """Where the copies of the tree that rows call `name` lie, with `size` pixels on their shorter side."""
    return cache / "images" / name / str(size)


def copies_are_whole(folder: Path) -> bool:
    """Whether all copies were made."""
    return (folder / "complete.json").is_file()


@dataclass(frozen=True)
class Prepared:
    """What became of the copies of one size."""

    folder: Path
    made: int
    kept: int
    """Copies that were there."""
    bad: tuple[tuple[str, str], ...]
    """(file, why) of images that have no copy."""
    odd: tuple[tuple[str, str], ...]
    """(file, mode) of images that were not RGB and were converted."""


def prepare(tree: Tree, size: int, cache: Path, processes: int) -> Prepared:
    """Make the copies of one size, or those that are missing; raises UserError where the disk is full."""
    from tqdm import tqdm

    folder = copies_folder(cache, tree.name, size)
    files = [split.path(index) for split in (tree.train, tree.valid) for index in range(len(split))]
    made = kept = 0
    bad, odd = [], []
    try:
        for where in sorted({str(Path(file).parent) for file in files}):
            (folder / where).mkdir(parents=True, exist_ok=True)
        copy = partial(_copy, tree.root, folder, size)
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            results = pool.map(copy, files, chunksize=16)
            answers = tqdm(results, total=len(files), unit="image", desc=f"{size} px", disable=not sys.stderr.isatty())
            for file, result in zip(files, answers, strict=True):
                made, kept = made + (result == "made"), kept + (result == "kept")
                if result.startswith("bad "):
                    bad.append((file, result[4:]))
                if result.startswith("odd "):
                    made += 1
                    odd.append((file, result[4:]))
        (folder / "complete.json").write_text(json.dumps({"images": made + kept, "bad": bad}), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: copies cannot be kept there ({error.strerror}); make room, then go on") from None
    return Prepared(folder, made, kept, tuple(bad), tuple(odd))


def _copy(root: Path, folder: Path, size: int, file: str) -> str:
    """`made`, `kept`, `odd MODE` or `bad WHY`; a copy appears whole or not at all."""
    from PIL import Image

    to = folder / file
    if to.is_file():
        return "kept"
    try:
        image, mode = open_image(root / file)
    except BadImage as error:
        return f"bad {error}"
    shorter = min(image.size)
    if shorter > size:
        width, height = (max(size, round(side * size / shorter)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    part = to.with_name(f".{to.name}.{os.getpid()}")
    image.save(part, "JPEG", quality=QUALITY)
    part.replace(to)
    return "made" if mode == "RGB" else f"odd {mode}"


# Batches, on their way between processes


@dataclass(frozen=True)
class Spec:
    """One batch to make: which images, how large, and by what crops. It travels to a loader process."""

    split: str
    indices: tuple[int, ...]
    width: int
    height: int
    copies: int
    min_scale: float = 1.0
    dice: int | None = None
    """Seed of the random crops and flips; None crops the centre."""


@dataclass(frozen=True)
class Made:
    """What a loader process made of a Spec."""

    x: Any
    """uint8 (N, H, W, 3)"""
    y: Any
    """int64 (N,)"""
    bad: list[tuple[str, str]] = field(default_factory=list)
    """(file, why) of images that could not be used."""
    odd: list[tuple[str, str]] = field(default_factory=list)
    """(file, mode) of images that were not RGB."""

    def pin_memory(self) -> "Made":
        """The same in memory from which a copy to the device need not be waited for (called by torch's loader)."""
        return Made(self.x.pin_memory(), self.y.pin_memory(), self.bad, self.odd)
