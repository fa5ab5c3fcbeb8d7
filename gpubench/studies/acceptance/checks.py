"""The figures of a card beside those of others of its kind, and what follows: keep, return or neither.

Figures are the rate of each case, the peak and the bandwidth. A reference is a host, as far as rows tell hosts apart.
In doubt nothing is said: keep asks every figure to be ok, return one that its kind does not explain.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from gpubench.studies.acceptance.alike import beside_others
from gpubench.studies.acceptance.limits import FALSE_ALARMS, FOUND, LEAST_HOSTS, SLOW, Limit, found_by, limit_of
from gpubench.studies.words import listed

KEEP, RETURN, CANNOT_SAY = "keep", "return", "cannot say"
RATE = "samples_per_second"
LIKELY = 0.8
"""A figure that is not too low is called ok where one 10% slow would be found so often.

At 0.5 a card slow in one figure is kept in half of the cases, where 37 hosts scatter twice as much as published.
"""
KIND = "others of its kind"
RARE = f"of good hosts like 39 published ones about {FALSE_ALARMS:.0%} are called slow"
OF_THE_CARD = {
    "measured_peak_flops": ("peak", "TFLOP/s", 1e12),
    "measured_bandwidth_bytes_per_second": ("bandwidth", "GB/s", 1e9),
}
"""By column the name of a figure that is not a case's, its unit, and how many of the column's that is."""


@dataclass(frozen=True)
class Figure:
    """One figure of this card and the same of the references."""

    name: str
    unit: str
    value: float
    references: tuple[float, ...]
    """One of each host."""
    limit: Limit | None = None
    """None without any reference."""

    @property
    def is_slow(self) -> bool:
        """Whether its kind does not explain it, and enough of its kind is known."""
        return self.limit is not None and self.is_known and self.value < self.limit.least

    @property
    def is_known(self) -> bool:
        """Whether enough hosts of its kind are."""
        return len(self.references) >= LEAST_HOSTS

    @property
    def said(self) -> str:
        """In two words at most."""
        if self.is_slow:
            return "too low"
        return "ok" if self.is_known and self.found > LIKELY else "not known"

    @property
    def found(self) -> float:
        """The share of cards that are SLOW by this figure that would be found."""
        return self.limit.found if self.limit else 0.0

    @property
    def share(self) -> float | None:
        """Of what is typical."""
        return self.value / self.limit.typical if self.limit else None


@dataclass(frozen=True)
class Judgement:
    """What is said of a card."""

    card: str
    figures: tuple[Figure, ...]
    shared: bool
    """Whether other programs computed meanwhile."""
    missing: tuple[str, ...] = ()
    """Figures that should be there and are not."""

    @property
    def references(self) -> int:
        """How many, for the figure that has the fewest."""
        return min((len(each.references) for each in self.figures), default=0)

    @property
    def slow(self) -> list[Figure]:
        """The figures that its kind does not explain."""
        return [each for each in self.figures if each.is_slow]

    @property
    def found(self) -> float:
        """The share of cards SLOW in everything that would be found, at least."""
        return found_by([each.limit for each in self.figures if each.limit])

    @property
    def verdict(self) -> str:
        """KEEP, RETURN or CANNOT_SAY."""
        if self.slow:
            return CANNOT_SAY if self.shared else RETURN
        every = self.figures and not self.missing and all(each.said == "ok" for each in self.figures)
        return KEEP if every and self.found >= FOUND else CANNOT_SAY

    @property
    def sentence(self) -> str:
        """The verdict with its reason."""
        if self.verdict == RETURN:
            return f"Return it: {self.card} is slow. {self._slow}; {RARE}."
        if self.verdict == KEEP:
            return (
                f"Keep it: {self.card} is as fast as {self.references} {KIND}. Of cards {SLOW:.0%} slow in everything"
                f" {self.found:.0%} or more would be found, of those slow in one figure {self._least:.0%} or more;"
                f" {RARE}."
            )
        return f"Cannot say whether {self.card} is slow: {self._doubt}."

    @property
    def _slow(self) -> str:
        return listed(
            f"{each.name} is {each.share:.2f} of what is typical of {len(each.references)} {KIND}" for each in self.slow
        )

    @property
    def _least(self) -> float:
        return min(each.found for each in self.figures)

    @property
    def _doubt(self) -> str:
        if self.slow:
            return f"{self._slow}, but other programs computed meanwhile; stop them and measure again"
        if self.missing:
            return f"{listed(self.missing)} could not be measured, and the rows say why"
        few = [each for each in self.figures if not each.is_known]
        if few:
            known = f"{self.references or 'none'} of {listed(each.name for each in few)}"
            return f"it takes {LEAST_HOSTS} {KIND} with this recipe and torch, and there is {known} (--against FILE)"
        least = min(self.figures, key=lambda each: each.found)
        return (
            f"{least.name} is {least.share:.2f} of typical, and {len(least.references)} {KIND} scatter so much that one"
            f" {SLOW:.0%} slow there would be found in {least.found:.0%} of cases"
        )


def judge(mine: pd.DataFrame, references: pd.DataFrame, lost: Sequence[str] = ()) -> Judgement:
    """Judge the rows of one device in one session, at least one, by those of `references_of`.

    `lost` names cases of it that have no result.
    """
    figures = _figures(mine, references)
    missing = tuple(each.name for each in figures if math.isnan(each.value))
    there = tuple(each for each in figures if not math.isnan(each.value))
    return Judgement(str(mine["card"].iloc[0]), there, beside_others(mine), (*lost, *missing))


def _figures(mine: pd.DataFrame, known: pd.DataFrame) -> list[Figure]:
    """Every figure of these rows with those of the known ones, of which each host has one."""
    found = []
    for recipe, rows in mine.groupby("recipe", sort=False):
        name = f"{rows['model'].iloc[0]} {rows['precision'].iloc[0]}"
        references = _by_host(known[known["recipe"] == recipe], RATE, 1.0)
        found.append(Figure(name, "samples/s", float(rows[RATE].median()), references))
    for column, (name, shown_in, scale) in OF_THE_CARD.items():
        # As `gpubench peak` measures them: in one precision, with so many threads.
        for (precision, threads), rows in mine.groupby(["precision", "threads"], sort=False, dropna=False):
            alike = known[(known["precision"] == precision) & (known["threads"] == threads)]
            value = float(rows[column].median()) / scale
            found.append(Figure(f"{name} {precision}", shown_in, value, _by_host(alike, column, scale)))
    return [replace(each, limit=limit_of(each.references, len(found))) if each.references else each for each in found]


def _by_host(rows: pd.DataFrame, column: str, scale: float) -> tuple[float, ...]:
    """The median of each host, in the unit that is so many of the column's."""
    return tuple(rows[rows[column] > 0].groupby("host")[column].median() / scale)
