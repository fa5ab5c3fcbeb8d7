"""Rows to matched comparisons with verdicts; whatever is left out is listed with its reason."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from gpubench.comparing.cells import GROUP, cells_of, completed, holes_of, labels_of, list_bad, once, title_of
from gpubench.comparing.cells import Cell as Cell
from gpubench.comparing.judging import Comparison as Comparison
from gpubench.comparing.judging import comparison, judged
from gpubench.comparing.matching import FOLLOWS, pairs_along, wished
from gpubench.comparing.means import Mean as Mean
from gpubench.comparing.means import means_of
from gpubench.comparing.specimens import combined
from gpubench.comparing.tricks import against_plain, kind_of
from gpubench.errors import UserError
from gpubench.loading import Loaded, load
from gpubench.records import COLUMNS

NOTHING_COMPARABLE = 3


@dataclass(frozen=True)
class Group:
    """Cells of one suite, recipe, data and source, and the comparisons among them."""

    title: str
    cells: list[Cell]
    """At least one trial each."""
    comparisons: list[Comparison] = field(default_factory=list)
    means: list[Mean] = field(default_factory=list)
    holes: list[Cell] = field(default_factory=list)
    """Cases of which no trial is ok."""


@dataclass(frozen=True)
class Result:
    """Everything `compare` shows."""

    groups: list[Group]
    left_out: list[str]
    problems: list[str]
    failed: int = 0
    """Rows that are neither ok nor unsupported."""
    baseline: tuple[str, str] | None = None
    """(column, value) that was named as the baseline."""

    @property
    def comparisons(self) -> list[Comparison]:
        """All of them; the family for Holm's correction."""
        return [comparison for group in self.groups for comparison in group.comparisons]


def compare_files(
    paths: Sequence[Path],
    by: str | None = None,
    baseline: str | None = None,
    charts: Path | None = None,
    why: bool = False,
    allow_mismatch: bool = False,
    fail_on_slower: float | None = None,
) -> int:
    """Print the comparison of all rows in `paths`, draw charts where asked; returns the exit code.

    With `why`, what bounds each case is shown, too. `fail_on_slower` is a share, 0.05 for 5%.

    Raises UserError where no row can be read, or `by` or `baseline`
    name nothing that is there.
    """
    if fail_on_slower is not None and baseline is None:
        raise UserError("--fail-on-slower needs --baseline (and --by): slower than what?")
    result = compare(paths, by, baseline, allow_mismatch)
    from gpubench.comparing.table import print_gate, print_result

    print_result(result, why=why)
    if charts is not None:
        from gpubench.comparing.plot import draw

        for path in draw(result, charts):
            print(path)
    if fail_on_slower is not None:
        from gpubench.comparing.gate import gate

        code, lines = gate(result, fail_on_slower)
        print_gate(lines)
        return code
    return 0 if result.comparisons else NOTHING_COMPARABLE


def compare(
    paths: Sequence[Path], by: str | None = None, baseline: str | None = None, allow_mismatch: bool = False
) -> Result:
    """Load, match and judge."""
    loaded = load(paths)
    if loaded.frame.empty:
        why = "; ".join(loaded.problems) or "the files hold none"
        raise UserError(f"no row to compare: {why}")
    return compare_rows(loaded, by, baseline, allow_mismatch)


def compare_rows(
    loaded: Loaded, by: str | None = None, baseline: str | None = None, allow_mismatch: bool = False
) -> Result:
    """Match and judge what is loaded."""
    by = {"batch": "batch_size"}.get(by or "", by)
    if by is not None and by not in {*COLUMNS, "cudnn_benchmark"} - {"laps", "batch_curve"}:
        raise UserError(f"--by {by}: no such column; try card, precision, torch, batch_size or mode")
    axes = [by] if by else ["card", "precision"]
    left_out: list[str] = []
    frame = once(completed(loaded.frame), left_out)
    ok = (frame["status"] == "ok") & (frame["seconds"] > 0)
    list_bad(frame[~ok], left_out)
    labels = labels_of(frame)
    cells, holes = combined(cells_of(frame[ok], labels), axes[0]), holes_of(frame, ok, labels)
    wish = wished(baseline, axes, cells) if baseline else None
    shared = [column for column in GROUP if column not in {*axes, *FOLLOWS.get(by or "", ())}]
    if allow_mismatch:
        shared = ["suite"]
    grouped: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        grouped[kind_of(cell, shared)].append(cell)
    groups = []
    for members in grouped.values():
        comparisons: list[Comparison] = []
        for axis in axes:
            pairs = pairs_along(axis, members, wish, left_out, explicit=by is not None, allow_mismatch=allow_mismatch)
            comparisons += [comparison(axis, subject, other) for subject, other in pairs]
        comparisons += against_plain(members)
        groups.append(Group(title_of(members), members, comparisons))
    _place_holes(holes, groups, [column for column in shared if column != "measured"])
    groups = [replace(g, means=means_of(g.comparisons, [*g.cells, *g.holes])) for g in groups]
    failed = int((~ok & (frame["status"] != "unsupported")).sum())
    return Result(_judged(groups), left_out, loaded.problems, failed, wish)


def _place_holes(holes: Sequence[Cell], groups: list[Group], shared: Sequence[str]) -> None:
    """Each hole goes to the first group of its kind, or to one of its own."""
    places = {kind_of(group.cells[0], shared): group for group in reversed(groups)}
    for hole in holes:
        key = kind_of(hole, shared)
        if key not in places:
            places[key] = Group(title_of([hole]), [])
            groups.append(places[key])
        places[key].holes.append(hole)


def _judged(groups: Sequence[Group]) -> list[Group]:
    """Verdicts over the whole family, which is every ratio that is shown."""
    verdicts = iter(judged([c for group in groups for c in group.comparisons]))
    return [replace(g, comparisons=list(islice(verdicts, len(g.comparisons)))) for g in groups]
