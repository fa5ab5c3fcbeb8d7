"""Links of a site: to its pages and rows, and to sources on the web. `pages` and `tables` call it."""

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
"""Matches a source that begins with a host and a path, with an optional commit; a user or a query does not match."""


@dataclass(frozen=True)
class Addresses:
    """The links to the pages and rows of a site."""

    cards: dict[str, str]
    """File name of each card's page, without suffix."""
    suites: dict[str, str]
    """File name of each suite's page, without suffix."""
    rows: dict[tuple[str, int], str]
    """Anchor of each row, by its file and line."""
    root: str = ""
    """Path from the page with the links to the folder of the first page."""

    def card(self, name: str, anchor: str = "") -> str:
        """Return the link to a card's page, or to an anchor in it."""
        return f"{self.root}card/{self.cards[name]}.html{'#' if anchor else ''}{anchor}"

    def suite(self, name: str, anchor: str = "") -> str:
        """Return the link to a suite's page, or to an anchor in it; empty for a suite without a page."""
        if name not in self.suites:
            return ""
        return f"{self.root}suite/{self.suites[name]}.html{'#' if anchor else ''}{anchor}"

    def row(self, row: SiteRow) -> str:
        """Return the link to a row in its card's page."""
        return self.card(row.card, self.anchor(row))

    def anchor(self, row: SiteRow) -> str:
        """Return the anchor of a row: its file and line. It does not change when files with other names are added."""
        return self.rows[row.file, row.line]


def addresses(cards: Iterable[str], suites: Iterable[str], rows: Iterable[SiteRow], root: str = "") -> Addresses:
    """Return the links of a site with these pages and rows, with unique file names."""
    anchors = {(row.file, row.line): f"{PurePath(row.file).stem}-{row.line}" for row in rows}
    return Addresses(
        _unique({card: card for card in cards}), _unique({suite: suite for suite in suites}), _unique(anchors), root
    )


def _unique(names: Mapping[Key, str]) -> dict[Key, str]:
    """Return the slug of each key's name, with a number where an earlier name has the same slug."""
    slugs: dict[Key, str] = {}
    taken: set[str] = set()
    for key, name in names.items():
        plain = stem = slug(name) or "unnamed"
        number = 1
        while stem in taken:
            number += 1
            stem = f"{plain}-{number}"
        taken.add(stem)
        slugs[key] = stem
    return slugs


def source_link(source: str) -> str:
    """Return the https link to a source at its commit; empty if the source does not begin with an address."""
    match = WEB.fullmatch(source)
    if not match:
        return ""
    place, commit = match["place"], match["commit"]
    tree = f"/tree/{commit}" if commit and place.lower().startswith("github.com/") else ""
    return f"https://{place}{tree}"


def figure_link(figure: Figure) -> str:
    """Return the link to the file that a published figure was read from, at its commit."""
    return f"https://github.com/{quote(figure.source)}/blob/{quote(figure.commit)}/{quote(figure.file)}"
