"""The figures of a card beside those of others of its kind, and what follows: keep, return or neither.

Figures are the rate of each case, the peak and the bandwidth. A reference is a device; where too few others are known,
it is an earlier session of this device, which can only tell whether it has become slower.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from gpubench.studies.acceptance.alike import STACK
from gpubench.studies.acceptance.limits import FALSE_ALARMS, FOUND, LEAST_HOSTS, SLOW, Limit, found_by, limit_of
from gpubench.studies.words import listed

KEEP, RETURN, CANNOT_SAY = "keep", "return", "cannot say"
RATE = "samples_per_second"
LIKELY = 0.5
"""A figure that is not too low is called ok where one 10% slow would more often be found than not."""
RARE = f" (of good cards {FALSE_ALARMS:.0%} at most are called slow)"
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
    """One of each reference."""
    limit: Limit | None = None
    """None without any reference."""

    @property
    def is_slow(self) -> bool:
        """Whether its kind does not explain it."""
        return self.limit is not None and self.value < self.limit.least

    @property
    def said(self) -> str:
        """In two words at most."""
        if self.limit is None or len(self.references) < LEAST_HOSTS:
            return "not known"
        return "too low" if self.is_slow else "ok" if self.limit.found > LIKELY else "not known"

    @property
    def share(self) -> float | None:
        """Of what is typical."""
        return self.value / self.limit.typical if self.limit else None


@dataclass(frozen=True)
class Judgement:
    """What is said of a card."""

    card: str
    figures: tuple[Figure, ...]
    against: str
    """What the references are, in words: `others of its kind`."""
    shared: bool
    """Whether other programs computed meanwhile."""
    rented: str = ""
    """What the card should be, a part of its name; empty where nobody said."""

    @property
    def is_another(self) -> bool:
        """Whether a word of `rented` is missing in the card's name: an `H100 PCIe` is no `H100 HBM3`."""
        words = _words(self.card)
        return not all(word in words for word in _words(self.rented))

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
        """The share of cards SLOW in everything that would be found."""
        limits = [each.limit for each in self.figures if each.limit]
        return found_by(limits) if len(limits) == len(self.figures) else 0.0

    @property
    def verdict(self) -> str:
        """KEEP, RETURN or CANNOT_SAY."""
        if self.is_another:
            return RETURN
        if self.references < LEAST_HOSTS or (self.slow and self.shared):
            return CANNOT_SAY
        if self.slow:
            return RETURN
        return KEEP if self.found >= FOUND else CANNOT_SAY

    @property
    def sentence(self) -> str:
        """The verdict with its reason."""
        if self.is_another:
            return f"Return it: this is {self.card}, not the {self.rented} that was rented."
        many = f"{self.references} {self.against}"
        if self.verdict == RETURN:
            return f"Return it: {self.card} is slower than {many} explain: {self._slow}{RARE}."
        if self.verdict == KEEP:
            return (
                f"Keep it: {self.card} is as fast as {many}. A card that is {SLOW:.0%} slow would be found in"
                f" {self.found:.0%} of cases{RARE}."
            )
        return f"Cannot say whether {self.card} is slow: {self._doubt(many)}."

    @property
    def _slow(self) -> str:
        return listed(f"{each.name} is {each.share:.2f} of typical" for each in self.slow)

    def _doubt(self, many: str) -> str:
        if self.references < LEAST_HOSTS:
            known = self.references or "none"
            wanted = f"it takes {LEAST_HOSTS} {self.against} with this recipe and torch"
            return f"{wanted}, and of them it knows {known} (--against FILE adds rows)"
        if self.slow:
            return f"{self._slow}, but other programs computed meanwhile; stop them and run it again"
        return f"{many} scatter so much that a card {SLOW:.0%} slow would be found in {self.found:.0%} of cases only"


def _words(card: str) -> list[str]:
    return card.lower().replace("-", " ").split()


def judge(mine: pd.DataFrame, known: pd.DataFrame, rented: str = "") -> Judgement:
    """Judge the rows of one device in one session by all rows that are known, its own among them.

    `rented` is what the card should be. Both as `measured_rows` gives them, `mine` not empty.
    """
    first = mine.iloc[0]
    card, device = str(first["card"]), str(first["device_hash"])
    stack = (known[STACK] == first[STACK]).all(axis=1)
    alike = known[stack & (known["card"] == card) & (known["device_hash"] != "")]
    alike = alike[~alike["session"].isin(mine["session"])]
    own = alike[alike["device_hash"] == device]
    others = alike[alike["device_hash"] != device]
    by_others, by_own = _figures(mine, others, "device_hash"), _figures(mine, own, "session")
    # Its own past says nothing of a card that was slow from the first: only where there are too few others.
    past = _fewest(by_others) < LEAST_HOSTS and _fewest(by_own) > _fewest(by_others)
    words = "earlier runs of its own" if past else "others of its kind"
    shared = any("shared" in str(marks).split() for marks in mine["marks"])
    return Judgement(card, tuple(by_own if past else by_others), words, shared, rented)


def _fewest(figures: Sequence[Figure]) -> int:
    return min((len(each.references) for each in figures), default=0)


def _figures(mine: pd.DataFrame, known: pd.DataFrame, unit: str) -> list[Figure]:
    """Every figure of these rows with those of the known ones, of which each `unit` has one."""
    found = []
    for recipe, rows in mine.groupby("recipe", sort=False):
        name = f"{rows['model'].iloc[0]} {rows['precision'].iloc[0]}"
        references = _by_unit(known[known["recipe"] == recipe], RATE, unit)
        found.append(Figure(name, "samples/s", float(rows[RATE].median()), references))
    for column, (name, shown_in, scale) in OF_THE_CARD.items():
        # As `gpubench peak` measures them: in one precision, with so many threads.
        for (precision, threads), rows in mine.groupby(["precision", "threads"], sort=False):
            alike = known[(known["precision"] == precision) & (known["threads"] == threads)]
            value = float(rows[column].median()) / scale
            references = tuple(each / scale for each in _by_unit(alike, column, unit))
            if value == value:
                found.append(Figure(f"{name} {precision}", shown_in, value, references))
    return [replace(each, limit=limit_of(each.references, len(found))) if each.references else each for each in found]


def _by_unit(rows: pd.DataFrame, column: str, unit: str) -> tuple[float, ...]:
    """The median of each device, or of each session; a peak that one session took over from another counts once."""
    medians = rows[rows[column] > 0].groupby(unit)[column].median()
    return tuple(medians if unit == "device_hash" else medians.drop_duplicates())
