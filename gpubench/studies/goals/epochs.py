"""Epochs: accuracy over the hours of a run, own and published ones in one chart, from the tables that rows carry."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpubench.analysis.cells import Cell
from gpubench.analysis.compare import Result
from gpubench.rows.table import Epoch, epochs_in
from gpubench.studies import words
from gpubench.studies.cases import behind
from gpubench.studies.section import Column, Finding, Line, Lines, Point, Section, Table
from gpubench.suite.trial import TRAINED

NAMES = {"top5": "top-5", "top1": "top-1"}
"""Accuracies of an epoch, the one that counts first."""
APART = 20
"""Runs whose hours differ more than this have a logarithmic axis."""


@dataclass(frozen=True)
class Run:
    """The first trial of a case, epoch by epoch."""

    cell: Cell
    name: str
    epochs: Sequence[Epoch]

    def of(self, quality: str) -> list[tuple[Epoch, float]]:
        """The epochs that say this accuracy, with it."""
        shares = [(each, getattr(each, quality)) for each in self.epochs]
        return [(each, share) for each, share in shares if share is not None]

    @property
    def quality(self) -> str:
        """The accuracy that counts: top-5 where it has one."""
        return next((quality for quality in NAMES if self.of(quality)), "")


def sections(result: Result) -> Iterator[Section]:
    """One for each suite with rows whose table goes on epoch by epoch; of seconds alone."""
    if not result.is_usual:
        return
    cells = [cell for group in result.groups for cell in group.cases if cell.status in TRAINED]
    for suite in dict.fromkeys(cell.suite for cell in cells):
        runs = [run for run in _runs([cell for cell in cells if cell.suite == suite]) if run.quality]
        if runs:
            cases = behind(run.cell for run in runs)
            title, tables = f"{suite}: accuracy epoch by epoch", tuple(map(_table, runs))
            charts = tuple(_charts(suite, runs, cases))
            yield Section("epochs", suite, title, tuple(map(_finding, runs)), tables, charts, cases=cases)


def _runs(cells: Sequence[Cell]) -> Iterator[Run]:
    """Those with two epochs or more; what would have one name is numbered."""
    found = [(cell, epochs) for cell in cells if len(epochs := epochs_in(cell.row["table"])) > 1]
    names: Counter[str] = Counter()
    for cell, epochs in found:
        name = ", ".join([cell.model, cell.precision, _where(cell)])
        names[name] += 1
        yield Run(cell, f"{name} ({names[name]})" if names[name] > 1 else name, epochs)


def _where(cell: Cell) -> str:
    many = f"{cell.processes:.0f} x " if cell.processes > 1 else ""
    return f"{many}{cell.label}"


def _table(run: Run) -> Table:
    columns = (
        Column("epoch", "count"),
        Column("hours", "h", places=4),
        *(Column(NAMES[quality], "share", "higher", places=2) for quality in reversed(NAMES)),
        Column("pixels", "count"),
    )
    lines = tuple((each.number, each.hours, each.top1, each.top5, each.size) for each in run.epochs)
    return Table(f"epochs of {run.name}", columns, lines)


def _finding(run: Run) -> Finding:
    """The best of its accuracies, and after how many hours it had it."""
    cell, quality = run.cell, NAMES[run.quality]
    best, share = max(run.of(run.quality), key=lambda each: each[1])
    said = f"{cell.model} has {share:.1%} {quality} after epoch {best.number}, {best.hours:.3g} h, on {_where(cell)}"
    return Finding(
        kind="epochs",
        suite=cell.suite,
        subject=f"{quality} after epoch {best.number}, {best.hours:.3g} h, {cell.model} on {_where(cell)}",
        value=share,
        caveats=("missed its goal",) if cell.status == "goal_missed" else (),
        doubts=words.doubts_of([cell]),
        models=(cell.model,),
        trials=(max(cell.trials, 1), 0),
        said=said,
        origin=cell.precision,
        figure=f"{share:.1%}",
        facts=words.facts_of(cell),
        cases=cell.cases,
        source=cell.source,
    )


def _charts(suite: str, runs: Sequence[Run], cases: frozenset[int]) -> Iterator[Lines]:
    """One for each accuracy that runs have, a line for each run."""
    for quality, name in NAMES.items():
        own = [run for run in runs if len(run.of(quality)) > 1]
        if not own:
            continue
        lines = [
            Line(run.name, tuple(Point(each.hours, 100 * share) for each, share in run.of(quality))) for run in own
        ]
        ends = [line.points[-1].x for line in lines]
        whose = f"; {own[0].name}" if len(own) == 1 else ""
        yield Lines(
            words.slug(f"{suite} {quality} over hours"),
            f"{suite}: {name} accuracy over the hours of a run",
            f"Per cent after each epoch by hours since the beginning; higher is better{whose}",
            tuple(lines),
            "hours",
            f"{name}, %",
            log_x=10 if max(ends) > APART * min(ends) else 0,
            foot=words.origin([run.cell for run in own]),
            cases=cases,
        )
