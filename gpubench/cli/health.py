"""`gpubench doctor --against FILES`: is this card as fast as other cards of its kind?

The rule is fixed: a case is slow when its rate is more than 7% below the median of the references. A reference is
the median rate of one other card.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from gpubench.analysis.groups import completed
from gpubench.errors import UserError
from gpubench.hardware.environment import devices_of
from gpubench.printed import say
from gpubench.rows.alike import REFERENCE
from gpubench.rows.read import load
from gpubench.runner import process
from gpubench.show.terminal import table_lines
from gpubench.show.wrap import line_width, wrapped
from gpubench.studies.cards.figures import short_name
from gpubench.studies.cards.ranked_rates import expected_rate
from gpubench.studies.section import Column, Estimate, Table, Value

LIMIT = 0.07
"""A case is slow if its rate is below the median of the references by more than this share."""
HEALTHY, SLOW, NOTHING_TO_COMPARE = 0, 1, 3
"""Exit codes."""
NO_REFERENCE = frozenset({"shared", "shared_peak", "throttled"})
"""Marks of trials that are too slow to be a reference."""
ADVICE = "`gpubench doctor` checks what can slow a card: power limit, clocks, heat, PCIe, other programs."
MEASURE = "measure first: gpubench run --suite reference --batch 64"


@dataclass(frozen=True)
class CaseHealth:
    """One case of this card beside its references."""

    case: str
    """Model and precision."""
    suite: str
    batch: str
    rate: float
    """Median of its trials, in samples/s."""
    references: tuple[float, ...] = ()
    """One rate for each other card, in samples/s; empty if no other card has the same case."""
    published: Estimate | None = None
    """The rate expected from published figures of this card, with its 90% interval; only without references."""
    caveat: str = ""

    @property
    def expected(self) -> Estimate | None:
        """The median of the references with their range, else `published`, which may be None."""
        if not self.references:
            return self.published
        return Estimate(float(pd.Series(self.references).median()), min(self.references), max(self.references))

    @property
    def verdict(self) -> str:
        """`ok`, `slow` or `no references`. A published figure is rough: only a rate below its interval is slow."""
        if self.expected is None:
            return "no references"
        limit = self.expected.value * (1 - LIMIT)
        if not self.references:
            limit = min(limit, self.expected.low or 0.0)
        return "slow" if self.rate < limit else "ok"

    @property
    def line(self) -> list[tuple[Column, Value]]:
        """The line of the printed table."""
        expected = self.expected
        return [
            (Column("case"), self.case),
            (Column("suite"), self.suite),
            (Column("batch"), self.batch),
            (Column("samples/s", "x"), self.rate),
            (Column("median", "x"), expected.value if expected else None),
            (Column("ratio", "ratio", places=2), self.rate / expected.value if expected else None),
            (Column("min", "x"), expected.low if expected else None),
            (Column("max", "x"), expected.high if expected else None),
            (Column("cards", "count"), len(self.references)),
            (Column("verdict"), f"{self.verdict} (rough)" if self.published else self.verdict),
            (Column("caveat", note=True), self.caveat),
        ]


def health(files: Sequence[Path], against: Sequence[Path]) -> int:
    """Print whether the card is as fast as others of its kind; returns the exit code. Raises UserError.

    `files` have rows of this card. Without `files`, rows of this machine's devices in `results` and `against` count.
    A folder means its CSV files.
    """
    if missing := [str(path) for path in (*files, *against) if not path.exists()]:
        raise UserError(f"{missing[0]}: no such file or folder")
    own_files = files or tuple(filter(Path.exists, [Path("results")]))
    known, problems = measured_rows([*own_files, *against])
    mine = measured_rows(files)[0] if files else known[known["device_hash"].isin(this_machine())]
    say(*problems, err=True)
    if mine.empty:
        raise UserError(f"no rows of this card with a rate from a run without --quick; {MEASURE}")
    verdicts = set()
    for (card, _), rows in mine.groupby(["card", "device_hash"], sort=False):
        cases = cases_of(rows, known)
        verdicts |= {case.verdict for case in cases}
        say(*report_lines(str(card), cases), "")
    return SLOW if "slow" in verdicts else HEALTHY if "ok" in verdicts else NOTHING_TO_COMPARE


def measured_rows(files: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of sampled and full runs that have a rate, and what could not be read."""
    loaded = load(files)
    rows = loaded.frame.drop_duplicates()
    is_good = (rows["status"] == "ok") & rows["mode"].isin(["sampled", "full"]) & (rows["samples_per_second"] > 0)
    done = completed(rows).assign(started=rows["started"])
    done["alike"] = ["|".join(map(str, values)) for values in done[REFERENCE].itertuples(index=False)]
    return done[is_good], loaded.problems


def this_machine() -> set[str]:
    """Return the hashes of this machine's accelerators, or of its CPU where it has none."""
    devices = devices_of(process.describe())
    devices = [device for device in devices if device.kind != "cpu"] or devices
    return {device.device_hash for device in devices} - {""}


def cases_of(rows: pd.DataFrame, known: pd.DataFrame) -> list[CaseHealth]:
    """Return the cases of one card, each by the trials of its newest session and with its references in `known`."""
    unmarked = known["marks"].map(lambda marks: NO_REFERENCE.isdisjoint(str(marks).split())).astype(bool)
    others = known[unmarked & (known["power_cap"] == "") & ~known["device_hash"].isin(["", *rows["device_hash"]])]
    cases = []
    for alike, all_trials in rows.groupby("alike", sort=False):
        first = all_trials.sort_values("started").iloc[-1]
        trials = all_trials[all_trials["session"] == first["session"]]
        rates = tuple(others[others["alike"] == alike].groupby("device_hash")["samples_per_second"].median())
        batch = "" if pd.isna(first["batch_size"]) else f"{first['batch_size']:.0f}"
        name = f"{first['model']} {first['precision']}"
        published = None if rates else expected_rate(trials)
        marks = sorted({mark for text in trials["marks"] for mark in str(text).split()})
        caveats = [f"trials were {', '.join(marks)}"] if marks else []
        if published:
            caveats.append("no rows of other such cards: median and 90% interval are computed from published figures")
        rate = float(trials["samples_per_second"].median())
        cases.append(CaseHealth(name, first["suite"], batch, rate, rates, published, "; ".join(caveats)))
    return cases


def report_lines(card: str, cases: Sequence[CaseHealth]) -> list[str]:
    """Return the headline, the table and the advice for one card, within the width of a terminal."""
    compared = [case for case in cases if case.expected]
    slow = [case for case in compared if case.verdict == "slow"]
    if not compared:
        headline = f"{short_name(card)}: no other card has rows of the same case, torch and CUDA; add files (--against)"
    else:
        count = f"{len(slow)} of {len(compared)} case{'s' * (len(compared) != 1)}"
        verb = "is" if 1 in (len(slow), len(compared)) else "are"
        headline = f"{short_name(card)}: {count} {verb} more than {LIMIT:.0%} below other cards of its kind"
    table = table_lines(Table.of("cases", [dict(case.line) for case in cases]), line_width())
    return [*wrapped(headline), "", *table, *(["", *wrapped(ADVICE)] if slow else [])]
