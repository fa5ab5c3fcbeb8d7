"""Finds, checks, downloads and loads datasets (CIFAR, WikiText-2) and pretrained weights. Never imports torch."""

import hashlib
import os
import pickle
import sys
import tarfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from filelock import FileLock

from gpubench.data import corpus, images
from gpubench.errors import UserError, names_there

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENVIRONMENT_VARIABLE = "GPUBENCH_DATA"
CIFAR10, IMAGENET = "cifar10", "imagenet"
"""Names of datasets in rows."""
TREES = {IMAGENET: "ImageNet, or any tree train/CLASS/*.jpg with val/CLASS/*.jpg, or CLASS/*.jpg"}
"""Data that the user must give (--data or $GPUBENCH_DATA), because ImageNet's licence forbids redistribution."""


@dataclass(frozen=True)
class Dataset:
    """One dataset: its files and their addresses."""

    folder: str
    """Official name of the folder with the files."""
    files: Mapping[str, str]
    """The publisher's MD5 by file name."""
    urls: Mapping[str, str]
    """MD5 by address: an archive with the folder, or the files themselves."""
    about: str
    is_corpus: bool = False
    """Whether it is a word-level corpus (three text files), so that --data may name any other corpus."""


_CIFAR = "https://www.cs.toronto.edu/~kriz"
_WIKITEXT = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2"
_WIKITEXT_FILES = {
    "train.txt": "34a77ebe59551b3a3b3d8c0a2797c976",
    "valid.txt": "d756d22ab2310e7e60c094bea5c5a8eb",
    "test.txt": "781c9418ab9414bd09e4aad825aae752",
}
DATASETS: dict[str, Dataset] = {
    "cifar10": Dataset(
        "cifar-10-batches-py",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
        {f"{_CIFAR}/cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
        "60,000 images of 32 x 32 in 10 classes, 170 MB (Krizhevsky 2009)",
    ),
    "cifar100": Dataset(
        "cifar-100-python",
        {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        {f"{_CIFAR}/cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"},
        "60,000 images of 32 x 32 in 100 classes, 169 MB (Krizhevsky 2009)",
    ),
    "wikitext-2": Dataset(
        "wikitext-2",
        _WIKITEXT_FILES,
        {f"{_WIKITEXT}/{name}": md5 for name, md5 in _WIKITEXT_FILES.items()},
        "2 million words of Wikipedia, 13 MB, CC BY-SA (Merity et al. 2016)",
        is_corpus=True,
    ),
}

# torchvision's first ImageNet weights.
_WEIGHTS = {
    "resnet18-imagenet1k-v1": "resnet18-f37072fd.pth",
    "resnet34-imagenet1k-v1": "resnet34-b627a593.pth",
    "resnet50-imagenet1k-v1": "resnet50-0676ba61.pth",
    "resnet101-imagenet1k-v1": "resnet101-63fe2227.pth",
    "resnet152-imagenet1k-v1": "resnet152-394f9c45.pth",
}
_WEIGHTS_ADDRESS = "https://download.pytorch.org/models"


def names() -> list[str]:
    """Return the names of all data that `fetch` can download."""
    return [*DATASETS, *_WEIGHTS]


def cache_folder() -> Path:
    """Return the folder of downloads."""
    return Path(platformdirs.user_cache_dir("gpubench"))


def locate(wanted: Sequence[str], data: Path | None) -> Path | None:
    """Return the folder with the folders of all datasets `wanted`, or the folder of a tree of images; None if missing.

    Looks in `data` (--data: the parent of the datasets' folders, or one of these), else in $GPUBENCH_DATA, else (not
    for a tree) in the cache. Raises UserError for an unknown dataset, if a folder that the user named is missing or
    lacks a file, or if a file has a wrong checksum. Checksums are compared here, before hours of training. A tree, or a
    corpus that the user named, may have any content: it has no checksums, and `row_name` returns its name.
    """
    for name in wanted:
        if name not in DATASETS and name not in TREES:
            raise UserError(f"dataset {name}: there are {', '.join([*DATASETS, *TREES])}")
    environment = os.environ.get(ENVIRONMENT_VARIABLE)
    named = data or (Path(environment) if environment else None)
    if named and not named.is_dir():
        raise UserError(f"{f'--data {named}' if data else f'{ENVIRONMENT_VARIABLE}={named}'}: no such folder")
    named = named and named.absolute()  # so that `--data .` has a name
    if wanted and wanted[0] in TREES:
        tree = images.find_tree(named) if named else None
        if data and tree is None:
            images.read_tree(data)  # raises UserError that describes a tree
        return tree
    root = named or cache_folder()
    if named is None and not all(is_complete(name, root) for name in wanted):
        return None
    if any(root.name == DATASETS[name].folder for name in wanted):
        root = root.parent
    for name in wanted:
        if named and DATASETS[name].is_corpus:
            corpus.files_of(_corpus_folder(name, root))
        else:
            check(name, root)
    return root


def seen(name: str) -> Path | None:
    """Return the first of $GPUBENCH_DATA and the cache that has all files of the dataset (unchecked), or None."""
    environment = os.environ.get(ENVIRONMENT_VARIABLE)
    roots = [Path(environment).absolute()] if environment else []
    return next((root for root in (*roots, cache_folder()) if is_complete(name, root)), None)


def row_name(name: str, root: Path) -> str:
    """Return the name that rows give to the data under `root`: `name`, or another one if a user's data replaces it.

    Reads a corpus completely; raises UserError if its text cannot be read.
    """
    if name in TREES:
        return images.read_tree(root).name
    if not DATASETS[name].is_corpus:
        return name
    folder = _corpus_folder(name, root)
    load_corpus(name, root)
    return corpus.name_of(folder, name, DATASETS[name].files)


def load_corpus(name: str, root: Path) -> corpus.Corpus:
    """Return the corpus under `root` (dataset `name`, or the user's instead) as token numbers."""
    return corpus.load(_corpus_folder(name, root))


def load_bytes(name: str, root: Path) -> "dict[str, NDArray[np.uint8]]":
    """Return the text of each split of the corpus under `root` as bytes, uint8 (N,)."""
    import numpy as np

    files = corpus.files_of(_corpus_folder(name, root))
    return {split: np.fromfile(path, np.uint8) for split, path in files.items()}


def _corpus_folder(name: str, root: Path) -> Path:
    """Return the official folder under `root`, or `root` itself if the text files are there."""
    official = root / DATASETS[name].folder
    return official if official.is_dir() or corpus.file_of(root, "train") is None else root


def is_complete(name: str, root: Path) -> bool:
    """Return whether all files of the dataset are under `root`; does not read them (see `check`)."""
    dataset = DATASETS[name]
    return all((root / dataset.folder / file).is_file() for file in dataset.files)


def check(name: str, root: Path) -> None:
    """Raise UserError that names the first file that is missing or has a wrong checksum."""
    dataset = DATASETS[name]
    for file, md5 in dataset.files.items():
        _verified(root / dataset.folder / file, md5, name)


def _verified(path: Path, md5: str, name: str) -> bytes:
    """Return the file's content after checking its MD5; reads the file only once."""
    advice = (
        f"`gpubench data fetch {name}` downloads the official files into the cache, which is read if neither --data nor"
        f" {ENVIRONMENT_VARIABLE} names a folder; --synthetic needs none"
    )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {advice}") from None
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise UserError(f"{path}: not the official file (its MD5 differs: truncated or changed); {advice}")
    return content


@dataclass(frozen=True)
class Split:
    """Images, uint8 (N, 3, 32, 32), and their labels, int64 (N,)."""

    images: "NDArray[np.uint8]"
    labels: "NDArray[np.int64]"


def load_cifar(name: str, root: Path) -> tuple[Split, Split]:
    """Return train and test split of `cifar10` or `cifar100` under `root`; checks the MD5 before unpickling."""
    import numpy as np

    dataset = DATASETS[name]
    parts: dict[bool, list[Any]] = {True: [], False: []}
    for file, md5 in dataset.files.items():
        content = _verified(root / dataset.folder / file, md5, name)
        with warnings.catch_warnings():
            # NumPy 2.4 warns about the old dtype notation in the official pickles.
            warnings.filterwarnings("ignore", message=r".*align")
            parts[file.startswith("test")].append(pickle.loads(content, encoding="latin1"))
    label = "fine_labels" if name == "cifar100" else "labels"
    train, test = (
        Split(
            np.concatenate([np.asarray(part["data"], np.uint8) for part in parts[is_test]]).reshape(-1, 3, 32, 32),
            np.concatenate([np.asarray(part[label], np.int64) for part in parts[is_test]]),
        )
        for is_test in (False, True)
    )
    return train, test


def weights_url(name: str) -> str:
    """Return the official address of pretrained weights."""
    return f"{_WEIGHTS_ADDRESS}/{_WEIGHTS[name]}"


def locate_weights(name: str, folder: Path | None) -> Path | None:
    """Return the weights' file in `folder` (--weights) or in the cache, or None.

    Weights without an official file are a folder of safetensors: `folder / name`, or else `folder`.
    Raises UserError if the file has a wrong checksum.
    """
    if name not in _WEIGHTS:
        places = [folder / name, folder] if folder else []
        return next((place for place in places if any(place.glob("*.safetensors"))), None)
    for candidate in (folder, cache_folder() / "weights"):
        if candidate is not None and (candidate / _WEIGHTS[name]).is_file():
            path = candidate / _WEIGHTS[name]
            if not _is_official_weights(path):
                raise UserError(
                    f"{path}: not torchvision's file (its SHA-256 differs: truncated or changed);"
                    f" delete it; `gpubench data fetch {name}` downloads the official one into the cache"
                )
            return path
    return None


def weights_row_name(name: str, folder: Path | None) -> str:
    """Return the name of weights in rows; it ends in digits of their SHA-256 if they have no official file."""
    place = locate_weights(name, folder)
    if name in _WEIGHTS or place is None:
        return name
    whole = hashlib.sha256()
    for path in sorted(place.glob("*.safetensors")):
        whole.update(bytes.fromhex(corpus.checksum(path, "sha256")))
    return f"{name}-{whole.hexdigest()[:8]}"


def _is_official_weights(path: Path) -> bool:
    # torchvision's file names end in the first eight digits of the file's SHA-256.
    return corpus.checksum(path, "sha256").startswith(path.stem.rpartition("-")[2])


def fetch(name: str) -> Path:
    """Download a dataset or weights into the cache; return the cache's folder, or the weights' file.

    Complete data is kept; other data is downloaded again. Raises UserError for ImageNet and unknown names,
    without a network, on a full disk, or if a checksum differs.
    """
    if name in TREES:
        raise UserError(
            f"{name}: its licence forbids redistribution; image-net.org gives it to registered users;"
            " use --data DIR with a tree train/CLASS/*.jpg and val/CLASS/*.jpg, or --synthetic"
        )
    if name not in names():
        raise UserError(f"data fetch {name}: {names_there(name, names())}")
    root = cache_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock"):  # two runs may want the same data at once
            return _fetch_weights(name, root / "weights") if name in _WEIGHTS else _fetch_data(name, root)
    except OSError as error:
        raise UserError(
            f"{root}: {name} cannot be written ({error.strerror});"
            " free some space, or use --data DIR (--weights DIR) with files you have"
        ) from None


def _fetch_weights(name: str, folder: Path) -> Path:
    path = folder / _WEIGHTS[name]
    if not (path.is_file() and _is_official_weights(path)):
        path.unlink(missing_ok=True)
        _download(weights_url(name), None, folder, name)
        if not _is_official_weights(path):
            path.unlink()
            raise UserError(f"{weights_url(name)}: the downloaded file is not {name}; try again")
    return path


def _fetch_data(name: str, root: Path) -> Path:
    dataset = DATASETS[name]
    with suppress(UserError):  # missing, incomplete or changed
        check(name, root)
        return root
    for url, md5 in dataset.urls.items():
        if url.endswith(".tar.gz"):
            archive = _download(url, md5, root, name)
            with tarfile.open(archive) as tar:
                tar.extractall(root, filter="data")
            archive.unlink()
        else:
            _download(url, md5, root / dataset.folder, name)
    check(name, root)
    return root


def _download(url: str, md5: str | None, folder: Path, name: str) -> Path:
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")
    option = "--weights DIR" if name in _WEIGHTS else "--data DIR"
    try:
        return Path(
            pooch.retrieve(
                url,
                known_hash=f"md5:{md5}" if md5 else None,
                fname=url.rpartition("/")[2],
                path=folder,
                downloader=pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30),
            )
        )
    except ValueError:  # pooch: a different checksum
        raise UserError(f"{url}: the downloaded file is not {name} (its MD5 differs); try again") from None
    except requests.RequestException as error:
        raise UserError(
            f"could not download {name} from {url} ({type(error).__name__}):"
            f" use {option} with files you have, or --synthetic"
        ) from None
