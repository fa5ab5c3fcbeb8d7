"""Builds the report of each submitted file: what is missing or wrong, and notes for the reviewer."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from gpubench.printed import shown as harmless
from gpubench.rows import alike
from gpubench.rows.read import Loaded, cells_of, load
from gpubench.rows.row import COLUMNS, DIGEST
from gpubench.studies import listed_peaks
from gpubench.submit import across_rows, row_checks, texts
from gpubench.submit.submitted import Problem, SubmittedRow, rows_of
from gpubench.suite.trial import TRAINED

PROVENANCE = (
    "card", "device", "device_hash", "cpu", "os", "torch", "torchvision", "fastai", "python", "gpubench", "session",
    "started", "params",
)  # fmt: skip
"""Columns that rows of gpubench's trials may not leave empty."""
PUBLISHED = ("card", "source", "params")
"""Columns that rows of published figures may not leave empty."""
MEASURED = ("laps", "precision_proof", "gpubench", "device_hash", "suite_digest")
"""Columns that are filled only in rows of gpubench's trials."""
FEWEST = {"sampled": 3, "full": 1, "quick": 3, "published": 1}
"""Minimum trials per case, by mode. A run ends a case after three trials if they decide its ratios."""
WITHOUT_DIGEST = ("0", "1")
"""The versions of gpubench whose rows have no digest: 0.1 and its patches."""
DISTURBED = frozenset({"shared", "throttled", "unsteady", "clock_fell"})
"""Marks of trials whose times may be wrong."""
MOST_NAMED = 3
"""Maximum lines with the same problem that are named."""


@dataclass(frozen=True)
class Report:
    """The outcome for one file."""

    missing: list[str] = field(default_factory=list)
    """What must change before a pull request, in sentences."""
    notes: list[str] = field(default_factory=list)
    """For the reviewer: what could not be checked, and trials that were disturbed."""


def reports(paths: Sequence[Path], against: Sequence[Path] = ()) -> dict[Path, Report]:
    """Return a report for each file, also of folders. All rows are compared with each other and with `against`."""
    all_files = dict.fromkeys(file for path in paths for file in (sorted(path.glob("*.csv")) or [path]))
    files = {path: load([path], keep=True) for path in all_files}
    rows = {path: rows_of(loaded) for path, loaded in files.items()}
    submitted = {path.resolve() for path in files}
    published = [row for row in rows_of(load(against, keep=True)) if row.place.path.resolve() not in submitted]
    shared: dict[Path, list[Problem]] = defaultdict(list)
    for problem in across_rows.problems([row for path in files for row in rows[path]], published):
        shared[problem.place.path].append(problem)
    return {
        path: Report([*_missing(loaded, rows[path], shared[path])], [*_notes(loaded, rows[path])])
        for path, loaded in files.items()
    }


def _ours(rows: Iterable[SubmittedRow]) -> list[SubmittedRow]:
    """Return the rows of trainings that gpubench ran and that ended, with or without reaching their goal."""
    return [row for row in rows if row.trained and not row.published]


def _missing(loaded: Loaded, rows: Sequence[SubmittedRow], shared: Iterable[Problem]) -> Iterator[str]:
    """Return what must change in a file; `shared` are the problems that a comparison with other rows found."""
    yield from loaded.problems
    if loaded.frame.empty:
        return
    if unknown := [name for name in loaded.places[0].header if name not in COLUMNS]:
        yield harmless(f"columns: {', '.join(unknown[:MOST_NAMED])[:200]}: not columns of gpubench; remove them")
    yield from _provenance(loaded.frame)
    yield from _without_digest(rows)
    lines = [cells_of(source.header, line) for source in loaded.sources for line in source.lines]
    yield from texts.problems(pd.DataFrame(lines, columns=COLUMNS))
    yield from _sentences([*shared, *(problem for row in _ours(rows) for problem in row_checks.problems(row))])
    yield from _trials(loaded.frame)


def _sentences(problems: Iterable[Problem]) -> Iterator[str]:
    """Yield a sentence for each line with problems, up to MOST_NAMED per column, then the number of other lines."""
    cells: dict[str, dict[int, list[Problem]]] = defaultdict(lambda: defaultdict(list))
    for problem in problems:
        cells[problem.column][problem.place.line].append(problem)
    for column, lines in cells.items():
        for line in sorted(lines)[:MOST_NAMED]:
            reasons = "; ".join(list(dict.fromkeys(problem.reason for problem in lines[line]))[:2])
            yield harmless(f"line {line}, {column} is {lines[line][0].value}: {reasons}")
        if len(lines) > MOST_NAMED:
            yield f"{column}: problems in {len(lines) - MOST_NAMED} more lines"


def _provenance(frame: pd.DataFrame) -> Iterator[str]:
    """Yield which columns about the origin of rows are empty or contradict each other."""
    measured = frame["source"] == ""
    for rows, names, whose in ((measured, PROVENANCE, ""), (~measured, PUBLISHED, " of a published figure")):
        for name in names:
            lacking = int((frame.loc[rows, name].astype(str) == "").sum())
            if lacking:
                yield f"provenance: {lacking} row(s){whose} without {name}"
    edited = int((frame[measured]["commit"].str.endswith("+")).sum())
    if edited:
        yield f"provenance: {edited} row(s) of an edited gpubench (commit ends in +): commit it, or use a release"
    named = frame[~measured & (frame["status"] == "ok")]
    both = (named["mode"] != "published") | (named[list(MEASURED)] != "").any(axis=1)
    if both.any():
        yield f"provenance: {int(both.sum())} row(s) with a source were measured here: leave source empty"


def _without_digest(rows: Iterable[SubmittedRow]) -> Iterator[str]:
    """Return how many rows lack the digest that their version of gpubench writes."""
    lacking = [
        row.place.line
        for row in rows
        if not row.published
        and not row.text(DIGEST)
        and (row.has(DIGEST) or tuple(row.text("gpubench").split(".")[:2]) != WITHOUT_DIGEST)
    ]
    if lacking:
        yield f"line {lacking[0]}, {DIGEST} is empty: {len(lacking)} row(s) lack the checksum that gpubench writes"


def _trials(frame: pd.DataFrame) -> Iterator[str]:
    """Return which cases have too few trials."""
    ended = frame[frame["status"].isin(TRAINED)]
    if ended.empty:
        yield "trials: no training ended"
    lacking: Counter[str] = Counter()
    for _, case in ended.groupby(alike.SUBMITTED, dropna=False, sort=False):
        first = case.iloc[0]
        least = FEWEST.get(first["mode"], 3)
        name = harmless(f"{first['model']} {first['precision']}")
        if first["mode"] == "quick":
            lacking[f"{name} was measured with --quick; measure it without"] += 1
        elif len(case) < least:
            lacking[f"{name} has {len(case)} of {least} trials that a {first['mode']} case needs"] += 1
    for what, cases in lacking.items():
        yield f"trials: {what}" + (f" ({cases} cases)" if cases > 1 else "")


def _notes(loaded: Loaded, rows: Sequence[SubmittedRow]) -> Iterator[str]:
    """Yield what could not be checked, and how many trials were disturbed."""
    new_rows = _ours(rows)
    if not new_rows:
        return
    if DIGEST not in loaded.places[0].header:
        yield f"no {DIGEST}: edited rows cannot be detected"
    if others := sorted({row.text("suite") for row in new_rows if row_checks.suite_of(row) is None}):
        yield harmless(f"{', '.join(others)}: suite_digest unknown here, so models and goals were not checked")
    cards = {(row.text("card"), row.number("card_memory_bytes")) for row in new_rows}
    if unlisted := sorted({card for card, memory in cards if listed_peaks.find(card, memory) is None}):
        yield harmless(f"{', '.join(unlisted)}: no listed peak, so their rates were not checked")
    if disturbed := [marks for row in new_rows if (marks := DISTURBED.intersection(row.text("marks").split()))]:
        named = ", ".join(sorted(set().union(*disturbed)))
        yield f"{len(disturbed)} of {len(new_rows)} row(s) are marked {named}: better measured again"
    uncounted = sum(not row.known("flops_per_sample", "measured_peak_flops") for row in new_rows)
    if uncounted:
        yield f"{uncounted} row(s) without FLOPs or a measured peak: rates not checked"
