"""Finds, splits and names trees of images, reads image sizes, and makes resized copies. Never imports torch.

A tree is a folder as for torchvision's ImageFolder: `train/CLASS/*.jpg` and `val/CLASS/*.jpg`, or only
`CLASS/*.jpg`, which is split into training and validation with a fixed seed.
"""

import hashlib
import json
import os
import random
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

MOST_LOOKED_AT = 100
"""At most this many files of a class are searched for an image. The mean size of a file is that of 100 to 199 files."""
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm")
VALIDATION_FOLDERS = ("val", "valid", "validation")
SPLIT_SEED = 42
HELD_OUT = 5
"""Without a validation folder, one image in this many of each class is used for validation."""
MOST_PIXELS = 2**26
"""Images with more pixels are refused before decoding: 67 million pixels take 200 MB."""
QUALITY = 90
"""JPEG quality of resized copies."""
IMAGENET = (1000, 1_281_167, 50_000)
"""Numbers of classes, training images and validation images of ILSVRC 2012."""


FAULTS = (AttributeError, ImportError, NameError)
"""Errors of our code or a library, not of an image file."""


class BadImage(Exception):
    """An image cannot be used; the message is the reason."""


@dataclass(frozen=True)
class Split:
    """Paths (relative to the tree's root) and class numbers, one array each. Loader processes share the memory."""

    paths: "NDArray[np.bytes_]"
    labels: "NDArray[np.int64]"

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> str:
        """Return the file's path, relative to the tree's root."""
        return os.fsdecode(bytes(self.paths[index]))


@dataclass(frozen=True)
class Tree:
    """A folder of images, whose files were listed but not opened."""

    root: Path
    classes: tuple[str, ...]
    train: Split
    valid: Split

    @property
    def name(self) -> str:
        """Name in rows: `imagenet`, or `tree-CLASSES-IMAGES-DIGEST` (training images; digest of names and sizes)."""
        counts = (len(self.classes), len(self.train), len(self.valid))
        if counts == IMAGENET and all(cls[:1] == "n" and cls[1:].isdecimal() for cls in self.classes):
            return "imagenet"
        digest = hashlib.sha256()
        for split in (self.train, self.valid):
            for index in range(len(split)):
                path = split.path(index)
                file = self.root / path
                size = file.stat().st_size if file.exists() else 0  # a broken link is a bad image, as in training
                digest.update(f"{path}\0{size}\0".encode(errors="surrogateescape"))
        return f"tree-{counts[0]}-{counts[1]}-{digest.hexdigest()[:8]}"


# The tree


def read_tree(root: Path) -> Tree:
    """Return the tree at `root`; raises UserError that describes a tree if there is none."""
    try:
        if (root / "train").is_dir():
            return _divided(root)
        return _flat(root)
    except OSError as error:
        raise UserError(f"{error.filename or root}: cannot be read ({error.strerror})") from None


def find_tree(root: Path) -> Path | None:
    """Return `root / imagenet` or `root`, the first that has a tree; None if neither has one."""
    for folder in (root / "imagenet", root):
        if (folder / "train").is_dir() or _has_class(folder):
            return folder
    return None


def _has_class(folder: Path) -> bool:
    return folder.is_dir() and any(
        _is_class(entry)
        and any(file.suffix.lower() in ENDINGS for file in islice(Path(entry.path).iterdir(), MOST_LOOKED_AT))
        for entry in os.scandir(folder)
    )


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
    """Return images by class, in the class folders of `root / part`, as paths relative to `root`."""
    by_class = {}
    for entry in sorted((entry.name, entry.path) for entry in os.scandir(root / part) if _is_class(entry)):
        name, folder = entry
        files = [
            os.path.relpath(Path(where) / file, root)
            for where, _, names in os.walk(folder)
            for file in names
            if file.lower().endswith(ENDINGS) and not file.startswith(".")
        ]
        if files:
            by_class[name] = sorted(files)
    return by_class


def _is_class(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _tree(root: Path, classes: Sequence[str], train: dict[str, list[str]], valid: dict[str, list[str]]) -> Tree:
    if not classes or not any(valid.values()):
        raise UserError(
            f"{root}: not a tree of images; it needs train/CLASS/*.jpg and val/CLASS/*.jpg, or CLASS/*.jpg"
            f" (endings: {' '.join(ENDINGS)})"
        )
    return Tree(root, tuple(classes), _split(classes, train), _split(classes, valid))


def _split(classes: Sequence[str], files: dict[str, list[str]]) -> Split:
    import numpy as np

    labels = [number for number, name in enumerate(classes) for _ in files.get(name, ())]
    paths = [os.fsencode(path) for name in classes for path in files.get(name, ())]
    return Split(np.array(paths, dtype=np.bytes_), np.array(labels, dtype=np.int64))


def mean_bytes(root: Path, split: Split) -> float:
    """Return the mean bytes of a file of the split, from about MOST_LOOKED_AT files; 0 if none of them exists."""
    indices = range(0, len(split), max(1, len(split) // MOST_LOOKED_AT))
    sizes = [file.stat().st_size for file in (root / split.path(index) for index in indices) if file.is_file()]
    return sum(sizes) / max(1, len(sizes))


def shown(path: str) -> str:
    """Return a file's name for rows and screens, with bytes that are not UTF-8 escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


# One image


def open_image(path: str | Path) -> tuple["Image", str]:
    """Return the decoded image as RGB, and its mode in the file.

    Grey, CMYK and other modes are converted, as in torchvision's ImageFolder. Raises BadImage if the file is missing,
    broken or too large. FAULTS are not caught: a missing function of a library does not make an image bad.
    """
    from PIL import Image

    with _bad_images(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PIL warns of odd metadata; decoding errors raise
        with Image.open(path) as image:
            _check_size(image.size)
            return image.convert("RGB"), image.mode


def size_of(path: str | Path) -> tuple[int, int]:
    """Return width and height in pixels from the file's header; raises BadImage."""
    from PIL import Image

    with _bad_images(), Image.open(path) as image:
        _check_size(image.size)
        return image.size


@contextmanager
def _bad_images() -> Iterator[None]:
    """Raise BadImage for errors of an image file."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # MOST_PIXELS replaces PIL's limits
    try:
        yield
    except (BadImage, *FAULTS):
        raise
    except Exception as error:  # a broken file may raise nearly anything
        raise BadImage(_why(error)) from None


def _check_size(size: tuple[int, int]) -> None:
    width, height = size
    if width * height > MOST_PIXELS:
        raise BadImage(f"too large: {width} x {height} pixels; the limit is {MOST_PIXELS}")


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "not there"
    text = str(error)
    if "truncated" in text or "Truncated" in text:
        return "truncated"
    if isinstance(error, OSError) and ("cannot identify" in text or "broken" in text or not text):
        return "not an image, or broken"
    return f"{type(error).__name__}: {text.partition(chr(10))[0][:80]}"


def sizes_of(files: Sequence[Path], threads: int = 8) -> list[tuple[int, int] | None]:
    """Return (width, height) of each file in pixels, or None for a bad one."""

    def size(path: Path) -> tuple[int, int] | None:
        try:
            return size_of(path)
        except BadImage:
            return None

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(size, files))


# Resized copies


def copies_folder(cache: Path, name: str, size: int) -> Path:
    """Return the folder of the copies of tree `name` whose shorter side is at most `size` pixels."""
    return cache / "images" / name / str(size)


def copies_are_whole(folder: Path) -> bool:
    """Return whether all copies were made."""
    return (folder / "complete.json").is_file()


@dataclass(frozen=True)
class Prepared:
    """What `prepare` did for the copies of one size."""

    folder: Path
    made: int
    kept: int
    """Copies that existed already."""
    bad: tuple[tuple[str, str], ...]
    """(file, reason) of images without a copy."""


def prepare(tree: Tree, size: int, cache: Path, processes: int) -> Prepared:
    """Make the missing copies, with at most `size` pixels on the shorter side; raises UserError if writing fails."""
    from tqdm import tqdm

    folder = copies_folder(cache, tree.name, size)
    files = [split.path(index) for split in (tree.train, tree.valid) for index in range(len(split))]
    made = kept = 0
    bad = []
    try:
        for parent in sorted({str(Path(file).parent) for file in files}):
            (folder / parent).mkdir(parents=True, exist_ok=True)
        copy = partial(_copy, tree.root, folder, size)
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            results = pool.map(copy, files, chunksize=16)
            answers = tqdm(results, total=len(files), unit="image", desc=f"{size} px", disable=not sys.stderr.isatty())
            for file, result in zip(files, answers, strict=True):
                made, kept = made + (result == "made"), kept + (result == "kept")
                if result.startswith("bad "):
                    bad.append((file, result[4:]))
        (folder / "complete.json").write_text(json.dumps({"images": made + kept, "bad": bad}), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{folder}: copies cannot be written ({error.strerror}); free some space, then run it again"
        ) from None
    return Prepared(folder, made, kept, tuple(bad))


def _copy(root: Path, folder: Path, size: int, file: str) -> str:
    """Make one copy, complete or not at all; return `made`, `kept` or `bad REASON`."""
    from PIL import Image

    to = folder / file
    if to.is_file():
        return "kept"
    try:
        image, _ = open_image(root / file)
    except BadImage as error:
        return f"bad {error}"
    shorter = min(image.size)
    if shorter > size:
        width, height = (max(size, round(side * size / shorter)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    part = to.with_name(f".{to.name}.{os.getpid()}")
    image.save(part, "JPEG", quality=QUALITY)
    part.replace(to)
    return "made"


# Batches, sent between processes


@dataclass(frozen=True)
class Spec:
    """A batch that a loader process has to make: which images, their size in pixels, and how to crop them."""

    split: str
    indices: tuple[int, ...]
    width: int
    height: int
    copies: int
    min_scale: float = 1.0
    dice: int | None = None
    """Seed of the random crops and flips; None crops the centre."""


class FilesRead:
    """Makes later passes of a sampled run read files of earlier ones: in a whole run, all files are soon in memory."""

    def __init__(self, fitting: Collection[int]) -> None:
        self._fitting = fitting  # sizes whose copies all fit into memory; passes over other sizes stay unchanged
        self._read: dict[tuple[str, int], dict[int, None]] = {}

    def again(self, specs: Sequence[Spec]) -> Iterator[Spec]:
        """Yield the specs of a pass with the files that earlier passes read, in their order; the first unchanged."""
        before = {kind: cycle(list(indices)) for kind, indices in self._read.items() if indices}
        for spec in specs:
            kind = (spec.split, spec.copies)
            if kind in before:
                spec = replace(spec, indices=tuple(islice(before[kind], len(spec.indices))))
            if spec.copies in self._fitting:
                self._read.setdefault(kind, {}).update(dict.fromkeys(spec.indices))
            yield spec


@dataclass(frozen=True)
class Made:
    """A batch that a loader process made from a Spec."""

    x: Any
    """uint8 (N, H, W, 3)"""
    y: Any
    """int64 (N,)"""
    bad: list[tuple[str, str]] = field(default_factory=list)
    """(file, reason) of images that could not be used."""
    odd: list[tuple[str, str]] = field(default_factory=list)
    """(file, mode) of images that were not RGB."""

    def pin_memory(self) -> "Made":
        """Return the batch in pinned memory, for copies to the device without waiting (called by torch's loader)."""
        return Made(self.x.pin_memory(), self.y.pin_memory(), self.bad, self.odd)
