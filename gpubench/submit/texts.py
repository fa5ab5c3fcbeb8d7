"""Finds text that must not be published: private data, formulas, control characters, and cells that are too long."""

import json
import re
from collections import Counter
from collections.abc import Iterator

import pandas as pd

from gpubench.printed import STEERING
from gpubench.rows.spreadsheet import neutral

PRIVATE = {
    "a folder of a user": re.compile(r"(?:/home/|/Users/|/root/|[A-Za-z]:\\Users\\)[^\s/\\,]+"),
    "an e-mail address": re.compile(r"[\w.+-]@[\w-]+\.[A-Za-z]{2,}"),
    "a network address": re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?!\.\d)"),
}
VERSIONS = ("torch", "torchvision", "fastai", "cuda", "cudnn", "driver", "python", "os")
"""Columns in which four numbers with dots are a version, not a network address."""
LISTS = ("laps", "batch_curve", "table")
"""Columns that contain a JSON list, which may be long."""
MOST_CHARACTERS = 1000
"""Maximum length of a cell that is no list, in characters."""
MOST_IN_LIST = 100
"""Maximum length of a text in a list, such as the name of a phase, in characters."""


def problems(texts: pd.DataFrame) -> Iterator[str]:
    """Return a sentence for each column and kind of text that must not be published; `texts`: the cells of the file."""
    for name in texts.columns:
        hits: Counter[str] = Counter()
        for text, rows in Counter(map(str, texts[name])).items():
            for kind in _kinds(name, text):
                hits[kind] += rows
        for kind, rows in hits.items():
            if kind in PRIVATE:
                advice = "replace it, and note that in the pull request: submit will report the row as changed"
                yield f"private: column {name} has {kind} in {rows} row(s); {advice}"
            else:
                yield f"text: column {name} has {kind} in {rows} row(s)"


def _kinds(name: str, text: str) -> Iterator[str]:
    """Return what is wrong with a cell of this column."""
    if not text:
        return
    for kind, pattern in PRIVATE.items():
        if name != "source" and not (name in VERSIONS and kind == "a network address") and pattern.search(text):
            yield kind
    if neutral(text) != text:
        yield "a text that a spreadsheet runs as a formula"
    inside = _texts_in_list(text) if name in LISTS else [text]
    if inside is None:
        yield "a text that is no JSON list"
        return
    if any(STEERING.search(part) for part in inside):
        yield "control or invisible characters"
    most = MOST_IN_LIST if name in LISTS else MOST_CHARACTERS
    if any(len(part) > most for part in inside):
        yield f"a text of more than {most:,} characters"


def _texts_in_list(text: str) -> list[str] | None:
    """Return the texts in a JSON list of lists; None if the cell is no such list."""
    try:
        lines = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(lines, list) or not all(isinstance(line, list) for line in lines):
        return None
    cells = [cell for line in lines for cell in line]
    return None if any(isinstance(cell, list | dict) for cell in cells) else [c for c in cells if isinstance(c, str)]
