"""Compares rows with each other: missing trials, trials that occur twice, and copies of other rows."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from gpubench.rows import alike
from gpubench.submit.submitted import Problem, SubmittedRow
from gpubench.suite.trial import COMPARES_MODELS
from gpubench.welch import LOOKS, all_decided_early

ASKED = ("session", "suite", "model", "precision", "processes", "device_hash")
"""Columns of a case that are known even if a trial failed before its batch was chosen."""
MODEL = [*(name for name in ASKED if name != "precision"), "params"]
FIGURES = (
    "seconds", "train_seconds", "valid_seconds", "samples_per_second", "resident_samples_per_second", "loader_wait",
    "setup_seconds", "startup_seconds", "precision_error", "loss", "accuracy",
)  # fmt: skip
"""Figures by which `_equal` recognises a row that was copied from another one."""
NAMED_TRIALS = 6
"""Maximum missing trials that a message names."""
Shape = tuple[object, ...]


def problems(rows: Sequence[SubmittedRow], published: Sequence[SubmittedRow] = ()) -> Iterator[Problem]:
    """Yield the problems that a comparison of rows with each other and with `published` rows finds."""
    measured = [row for row in rows if not row.published]
    yield from _missing_trials(measured)
    for trials in _by((row for row in measured if row.trained), (*alike.SUBMITTED, "trial")).values():
        for row in trials[1:]:
            yield row.problem("trial", f"{_where(trials[0], row)} is the same trial of the same case")
    yield from _copies(rows, published)


def _by(rows: Iterable[SubmittedRow], columns: Sequence[str]) -> dict[Shape, list[SubmittedRow]]:
    groups: dict[Shape, list[SubmittedRow]] = defaultdict(list)
    for row in rows:
        groups[tuple(str(row.cells[name]) for name in columns)].append(row)
    return groups


def _missing_trials(rows: Sequence[SubmittedRow]) -> Iterator[Problem]:
    """Yield problems: cases that lack trials of their run (slow or failed ones may have been removed), wrong seeds."""
    failed = _by((row for row in rows if not row.trained), ASKED)
    numbered = [row for row in rows if row.trained and row.known("trial")]
    ends: dict[Shape, int] = {}
    for run in _by(numbered, ["session"]).values():
        last = max(int(row.number("trial")) for row in run)
        setups = {(row.text("device_hash"), row.text("processes")) for row in run}
        ends |= {key: last if len(setups) > 1 else _end(model, last) for key, model in _by(run, MODEL).items()}
    for case in _by(numbered, alike.SUBMITTED).values():
        first = case[0]
        others = failed.get(tuple(str(first.cells[name]) for name in ASKED), [])
        present = {int(row.number("trial")) for row in [*case, *others] if row.known("trial")}
        # A run with --until adds no trials to a case without an ok trial.
        goes_on = not first.known("until") or any(row.text("status") == "ok" for row in case)
        end = ends[tuple(str(first.cells[name]) for name in MODEL)] if goes_on else max(present)
        missing = list(islice((trial for trial in range(end + 1) if trial not in present), NAMED_TRIALS + 1))
        if missing:
            named = ", ".join(map(str, missing[:NAMED_TRIALS])) + (", ..." if len(missing) > NAMED_TRIALS else "")
            yield first.problem(
                "trial",
                f"trial(s) {named} of {first.text('model')} {first.text('precision')} are missing; send every trial of"
                " a run, also slow and failed ones, and resume a run that was interrupted",
            )
        for row in case:
            shift = row.number("seed") - row.number("trial") - first.number("seed") + first.number("trial")
            if abs(shift) > 0:  # NaN if a seed is empty, which row_checks reports
                yield row.problem("trial", f"its seed does not fit that of {_where(first, row)}, of the same case")


def _end(model: Sequence[SubmittedRow], last: int) -> int:
    """Return the last trial that a model's cases need: `last`, or their own last if a run could leave out the model."""
    own = max(int(row.number("trial")) for row in model)
    ok = (row for row in model if row.text("status") == "ok" and row.number("seconds") > 0)
    by_case = _by(ok, alike.SUBMITTED).values()
    cases = [(case[0].text("precision"), [row.number("seconds") for row in case]) for case in by_case]
    # As in runner/early.py: a sampled run leaves out a model after round 3 or 4 if all of its ratios are decided.
    may_stop = model[0].text("mode") == "sampled" and not model[0].known("until") and own + 1 in LOOKS
    may_stop &= COMPARES_MODELS.isdisjoint(model[0].text("studies").split())
    return own if may_stop and all_decided_early(cases) else last


def _copies(rows: Sequence[SubmittedRow], published: Sequence[SubmittedRow]) -> Iterator[Problem]:
    """Yield a problem for each row that has the laps or the figures of another row."""
    submitted = {id(row): at for at, row in enumerate(rows)}
    every = [row for row in [*published, *rows] if row.trained]
    copied: set[int] = set()
    published_first = sorted(_equal(every), key=lambda pair: id(pair[0]) in submitted)
    for original, row, how in published_first:
        if id(row) not in submitted or id(row) in copied or _is_itself(original, row):
            continue
        copied.add(id(row))
        column = "laps" if row.laps else "seconds"
        yield row.problem(column, f"{_where(original, row)} has the same {how}: one is a copy")


def _equal(rows: Sequence[SubmittedRow]) -> Iterator[tuple[SubmittedRow, SubmittedRow, str]]:
    """Return pairs of an earlier and a later row with equal laps, or with equal FIGURES (at least three known)."""
    first: dict[Shape, SubmittedRow] = {}
    for row in rows:
        laps = row.laps or ()
        figures = tuple(row.cells[name] for name in FIGURES) if sum(map(row.known, FIGURES)) >= 3 else ()
        for how, values in (("laps", laps), ("figures", tuple(map(str, figures)))):
            original = first.setdefault((how, values), row)
            if values and original is not row:
                yield original, row, how


def _is_itself(original: SubmittedRow, row: SubmittedRow) -> bool:
    """Return whether the original is this row in another file of the same name, such as its published version."""
    same_file = original.place.path != row.place.path and original.place.path.name == row.place.path.name
    return same_file and all(str(original.cells[name]) == str(cell) for name, cell in row.cells.items())


def _where(other: SubmittedRow, row: SubmittedRow) -> str:
    """Return the place of another row, for a message about this row."""
    place = other.place
    return f"line {place.line}" if place.path == row.place.path else f"{place.path}, line {place.line}"
