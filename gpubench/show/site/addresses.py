"""Where everything is on a site, and where a source is on the web: names of files, anchors, and links."""

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeVar
from urllib.parse import quote

from gpubench.studies.cards.figures import Figure
from gpubench.studies.ranked_cases import SiteRow
from gpubench.studies.words import slug

Key = TypeVar("Key", bound=Hashable)
WEB = re.compile(
    r"(?:https?://)?(?P<place>[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}/[\w./~%+-]+?)"
    r"(?:@(?P<commit>[0-9a-f]{7,40}))?(?:[,;\s].*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
"""A place on the web at the beginning of a source, and the commit it was read at: a host, a path, no user, no query."""


@dataclass(frozen=True)
class Addresses:
    """Of pages and rows, as a page in a folder `root` away from the first one needs them."""

    cards: dict[str, str]
    suites: dict[str, str]
    rows: dict[tuple[str, int], str]
    root: str = ""

    def card(self, name: str, anchor: str = "") -> str:
        """Of a card's page, or a place in it."""
        return f"{self.root}card/{self.cards[name]}.html{'#' if anchor else ''}{anchor}"

    def suite(self, name: str, anchor: str = "") -> str:
        """Of a suite's page; empty for one without any."""
        return (
            f"{self.root}suite/{self.suites[name]}.html{'#' if anchor else ''}{anchor}" if name in self.suites else ""
        )

    def row(self, row: SiteRow) -> str:
        """Of a row in its card's page."""
        return self.card(row.card, self.anchor(row))

    def anchor(self, row: SiteRow) -> str:
        """Its file and line; they stay what they are when files of other names join."""
        return self.rows[row.file, row.line]


def addresses(cards: Iterable[str], suites: Iterable[str], rows: Iterable[SiteRow], root: str = "") -> Addresses:
    """With names that a file may have, each once."""
    anchors = {(row.file, row.line): f"{PurePath(row.file).stem}-{row.line}" for row in rows}
    return Addresses(_unique(cards), _unique(suites), _unique_of(anchors), root)


def _unique(names: Iterable[str]) -> dict[str, str]:
    return _unique_of({name: name for name in names})


def _unique_of(names: Mapping[Key, str]) -> dict[Key, str]:
    """Each key with the slug of its name, numbered where an earlier one has it."""
    taken: set[str] = set()
    found = {}
    for key, name in names.items():
        plain = stem = slug(name) or "unnamed"
        number = 1
        while stem in taken:
            number += 1
            stem = f"{plain}-{number}"
        taken.add(stem)
        found[key] = stem
    return found


def source_link(source: str) -> str:
    """The https address that a source begins with, at its commit; empty where it begins with none."""
    found = WEB.fullmatch(source)
    if not found:
        return ""
    place, commit = found["place"], found["commit"]
    tree = f"/tree/{commit}" if commit and place.lower().startswith("github.com/") else ""
    return f"https://{place}{tree}"


def figure_link(figure: Figure) -> str:
    """The file that a published figure was read from, at its commit."""
    return f"https://github.com/{quote(figure.source)}/blob/{quote(figure.commit)}/{quote(figure.file)}"
