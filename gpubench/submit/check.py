"""Is a CSV fit to be published? Schema, provenance, privacy, enough trials, and rows that nothing speaks against."""

import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from gpubench.printed import shown as harmless
from gpubench.rows.read import Loaded, load
from gpubench.rows.row import COLUMNS, DIGEST
from gpubench.studies.roofline import listed_peaks
from gpubench.submit import figures, limits, replay, together
from gpubench.submit.entry import Doubt, Entry, entry_of
from gpubench.suite.trial import TRAINED

PROVENANCE = (
    "card",
    "device",
    "device_hash",
    "cpu",
    "os",
    "torch",
    "torchvision",
    "fastai",
    "python",
    "gpubench",
    "session",
    "started",
    "params",
)
PUBLISHED = ("card", "source", "params")
"""What a figure from elsewhere has to say."""
OWN = ("laps", "precision_proof", "gpubench", "device_hash", "suite_digest")
"""What only a run of gpubench can say."""
FEWEST = {"sampled": 6, "full": 1, "quick": 6, "published": 1}
"""Trials a case, by mode."""
PRIVATE = {
    "a folder of a user": re.compile(r"(?:/home/|/Users/|/root/|[A-Za-z]:\\Users\\)[^\s/\\,]+"),
    "an e-mail address": re.compile(r"[\w.+-]@[\w-]+\.[A-Za-z]{2,}"),
    "an address of a network": re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?!\.\d)"),
}
VERSIONS = ("torch", "torchvision", "fastai", "cuda", "cudnn", "driver", "python", "os", "source")
"""Columns whose dots are versions, not addresses."""
NAMED = 3
"""Lines of one kind that are named one by one."""


@dataclass(frozen=True)
class Report:
    """What is to be said of a file."""

    missing: list[str] = field(default_factory=list)
    """What stands between the file and a pull request, in sentences; empty where nothing does."""
    notes: list[str] = field(default_factory=list)
    """What nobody can tell from the file, for those who read the pull request."""


def reports(paths: Sequence[Path]) -> dict[Path, Report]:
    """By file what is to be said of it; the rows of all of them are held against each other."""
    files = {path: load([path], keep=True) for path in dict.fromkeys(paths)}
    entries = {path: _entries(loaded) for path, loaded in files.items()}
    between: dict[Path, list[Doubt]] = defaultdict(list)
    owner = {id(entry): path for path, own in entries.items() for entry in own}
    for entry, doubt in together.doubts([entry for own in entries.values() for entry in own]):
        between[owner[id(entry)]].append(doubt)
    return {
        path: Report([*_missing(path, loaded, entries[path], between[path])], [*_notes(loaded, entries[path])])
        for path, loaded in files.items()
    }


def _entries(loaded: Loaded) -> list[Entry]:
    """The rows of our own that have figures: of trainings that ended, whether or not they reached their goal."""
    rows = zip(loaded.places, loaded.frame.to_dict("records"), strict=True)
    found = [entry_of(place, {str(name): value for name, value in row.items()}) for place, row in rows]
    return [entry for entry in found if entry.text("status") in TRAINED and not entry.text("source")]


def _missing(path: Path, loaded: Loaded, entries: Sequence[Entry], between: Iterable[Doubt]) -> Iterator[str]:
    yield from loaded.problems
    if loaded.frame.empty:
        if not loaded.problems:
            yield f"{path}: no row to publish"
        return
    texts = pd.read_csv(io.BytesIO(loaded.table()), dtype=str, keep_default_na=False)
    yield from _provenance(loaded.frame)
    yield from _undigested(loaded)
    yield from _private(texts)
    yield from _implausible(loaded.frame)
    doubts = [doubt for entry in entries for check in (limits, figures, replay) for doubt in check.doubts(entry)]
    yield from _sentences([*between, *doubts])
    yield from _trials(loaded.frame)


def _sentences(doubts: Iterable[Doubt]) -> Iterator[str]:
    """A sentence for each doubt; of several in one column the first ones, and how many more there are."""
    cells: dict[str, dict[int, list[Doubt]]] = defaultdict(lambda: defaultdict(list))
    for doubt in doubts:
        cells[doubt.column][doubt.line].append(doubt)
    for column, lines in cells.items():
        for line in sorted(lines)[:NAMED]:
            follows = "; ".join(list(dict.fromkeys(doubt.follows for doubt in lines[line]))[:2])
            yield harmless(f"line {line}, {column}: it says {lines[line][0].said}; {follows}")
        if len(lines) > NAMED:
            yield f"{column}: the same of {len(lines) - NAMED} more lines"


def _provenance(frame: pd.DataFrame) -> Iterator[str]:
    own = frame["source"] == ""
    for rows, names, whose in ((frame[own], PROVENANCE, ""), (frame[~own], PUBLISHED, " of a published figure")):
        for name in names:
            lacking = int((rows[name].astype(str) == "").sum())
            if lacking:
                yield f"provenance: {lacking} row(s){whose} without {name}"
    edited = int((frame[own]["commit"].str.endswith("+")).sum())
    if edited:
        yield f"provenance: {edited} row(s) by an edited checkout (commit ends in +): commit the edit, or use a release"
    named = frame[~own & (frame["status"] == "ok")]
    both = (named["mode"] != "published") | (named[list(OWN)] != "").any(axis=1)
    if both.any():
        yield f"provenance: {int(both.sum())} row(s) with a source that are not published figures, but of a run here"


def _undigested(loaded: Loaded) -> Iterator[str]:
    """Rows of our own without a digest, where others of the file have one."""
    lacking = [
        place.line
        for place, digest, source in zip(loaded.places, loaded.frame[DIGEST], loaded.frame["source"], strict=True)
        if DIGEST in place.header and not digest and not source
    ]
    if lacking:
        yield f"line {lacking[0]}, {DIGEST}: it says nothing; {len(lacking)} row(s) lack what gpubench writes in each"


def _private(texts: pd.DataFrame) -> Iterator[str]:
    for name in texts.columns:
        counts = Counter(map(str, texts[name]))
        for what, pattern in PRIVATE.items():
            if name == "source" or (name in VERSIONS and what == "an address of a network"):
                continue
            hits = sum(count for text, count in counts.items() if pattern.search(text))
            if hits:
                yield (
                    f"private: column {name} holds {what} in {hits} row(s); blank it out, and say so in the"
                    " pull request: the row will be called changed"
                )


def _implausible(frame: pd.DataFrame) -> Iterator[str]:
    """What no figure can be, whoever published it."""
    ended = frame[frame["status"].isin(TRAINED)]
    rate = ended["samples_per_second"]
    # A published figure may be an accuracy, or a gain in its table, and have no time.
    stated = (ended["mode"] == "published") & (ended["accuracy"].notna() | (ended["table"] != ""))
    checks = {
        "seconds that are not above 0": ended["seconds"] <= 0,
        "neither seconds nor a rate": ended["seconds"].isna() & rate.isna() & ~stated,
        "a rate that is not above 0": rate <= 0,
        "more memory used than the card has": ended["peak_memory_bytes"] > ended["card_memory_bytes"] * 1.05,
    }
    for what, hits in checks.items():
        if hits.any():
            models = ", ".join(dict.fromkeys(ended[hits]["model"]))
            yield harmless(f"implausible: {int(hits.sum())} row(s) with {what} ({models})")


def _trials(frame: pd.DataFrame) -> Iterator[str]:
    ended = frame[frame["status"].isin(TRAINED)]
    if ended.empty:
        yield "trials: no row is of a training that ended"
    lacking: Counter[str] = Counter()
    for _, case in ended.groupby([*together.CASE], dropna=False, sort=False):
        first = case.iloc[0]
        least = FEWEST.get(first["mode"], 6)
        name = harmless(f"{first['model']} {first['precision']}")
        if first["mode"] == "quick":
            lacking[f"{name} was timed by --quick, a first look: run it without"] += 1
        elif len(case) < least:
            lacking[f"{name} has {len(case)} of the {least} that a {first['mode']} case needs"] += 1
    for what, cases in lacking.items():
        yield f"trials: {what}" + (f" ({cases} cases)" if cases > 1 else "")


def _notes(loaded: Loaded, entries: Sequence[Entry]) -> Iterator[str]:
    """What cannot be checked."""
    if not entries:
        return
    header = loaded.places[0].header
    if DIGEST not in header:
        yield f"no {DIGEST}: of an older gpubench, or taken away; nobody can see whether a row was edited"
    if absent := [name for name in COLUMNS if name not in header and name != DIGEST]:
        named = ", ".join(absent[:NAMED]) + (f" and {len(absent) - NAMED} more" if len(absent) > NAMED else "")
        yield f"without the columns {named}, which gpubench has by now: what follows from them is not checked"
    if others := sorted({entry.text("suite") for entry in entries if limits.suite_of(entry) is None}):
        yield harmless(f"{', '.join(others)}: not as this gpubench has it (suite_digest); its models are not checked")
    cards = {(entry.text("card"), entry.number("card_memory_bytes")) for entry in entries}
    if unlisted := sorted({card for card, memory in cards if listed_peaks.find(card, memory) is None}):
        yield harmless(f"{', '.join(unlisted)}: no peak is listed for it, to hold rates against")
    uncounted = sum(not entry.known("flops_per_sample", "measured_peak_flops") for entry in entries)
    if uncounted:
        yield f"{uncounted} row(s) without FLOPs or a measured peak: their rates are held against no limit"
