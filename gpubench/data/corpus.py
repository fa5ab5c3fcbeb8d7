"""Reads a word-level corpus such as WikiText-2: turns three text files into token numbers. Never imports torch."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SPLITS = ("train", "valid", "test")
END_OF_LINE = "<eos>"
_BLOCK_CHARACTERS = 1 << 24
"""Text is read in blocks of this size, so that the words of a large corpus are never in memory all at once."""


@dataclass(frozen=True)
class Corpus:
    """Token numbers, int32 (N,), of each split; `vocabulary` is the number of different tokens."""

    train: "NDArray[np.int32]"
    valid: "NDArray[np.int32]"
    test: "NDArray[np.int32]"
    vocabulary: int


def file_of(folder: Path, split: str) -> Path | None:
    """Return the path of a split's text: `SPLIT.txt`, or `wiki.SPLIT.tokens` (official archive); None if missing."""
    names = (f"{split}.txt", f"wiki.{split}.tokens")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def files_of(folder: Path) -> dict[str, Path]:
    """Return the file of each split; raises UserError that names a missing file."""
    paths = {}
    for split in SPLITS:
        path = file_of(folder, split)
        if path is None:
            raise UserError(
                f"{folder / split}.txt: not there; a corpus is a folder with train.txt, valid.txt and test.txt;"
                " `gpubench data fetch wikitext-2` downloads one into the cache, --synthetic needs none"
            )
        paths[split] = path
    return paths


def name_of(folder: Path, official: str, md5: Mapping[str, str]) -> str:
    """Return `official` if each split's file has the publisher's MD5, else `corpus-` and eight digits of SHA-256."""
    files = files_of(folder)
    if all(checksum(files[split], "md5") == md5[f"{split}.txt"] for split in SPLITS):
        return official
    sums = [checksum(path, "sha256") for path in files.values()]
    return f"corpus-{hashlib.sha256(' '.join(sums).encode()).hexdigest()[:8]}"


def load(folder: Path) -> Corpus:
    """Return the corpus in `folder` as token numbers.

    Tokens are separated by white space, with `<eos>` at the end of each line. They are numbered in the
    order of first appearance in train, valid, test, as in the word language model of pytorch/examples.
    Line ends of all systems work. Raises UserError for a missing or empty file and for bytes that are not UTF-8.
    """
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new word gets the next number
    parts = {split: _tokens(path, numbers) for split, path in files_of(folder).items()}
    return Corpus(**parts, vocabulary=len(numbers))


def _tokens(path: Path, numbers: "defaultdict[str, int]") -> "NDArray[np.int32]":
    import numpy as np

    blocks = []
    words_besides = False
    try:
        with path.open(encoding="utf-8-sig") as file:  # text mode turns all line ends into \n
            while lines := file.readlines(_BLOCK_CHARACTERS):
                words = f" {END_OF_LINE} ".join([*lines, ""]).split()
                blocks.append(np.fromiter(map(numbers.__getitem__, words), np.int32, len(words)))
                words_besides = words_besides or len(words) > len(lines)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not UTF-8 text ({error.reason} 0x{error.object[error.start]:02x});"
            " convert it: iconv -f ENCODING -t UTF-8"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if not words_besides:
        raise UserError(f"{path}: no words in the file; add some text, or use another folder as --data")
    return np.concatenate(blocks)


def checksum(path: Path, algorithm: str) -> str:
    """Return the checksum of a file in hex digits; raises UserError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
