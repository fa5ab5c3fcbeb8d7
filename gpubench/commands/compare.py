"""`gpubench compare`: what was found in some files, and on request every case, chart and format."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpubench.analysis.cells import Cell
from gpubench.analysis.compare import Question, Result, answer_of, asked
from gpubench.analysis.metrics import did_you_mean, metric_named
from gpubench.errors import UserError
from gpubench.show.terminal import screen
from gpubench.studies.answer import Answer, findings_of
from gpubench.studies.finding import Finding
from gpubench.studies.scaling import Views, views_of

NOTHING_COMPARABLE = 3


@dataclass(frozen=True)
class Shape:
    """How the answer is given."""

    table: str = "terminal"
    every: bool = False
    """Every case and comparison, not only what was found."""
    only: str = ""
    """A suite, or a part of a card's name: this in full, and nothing else."""
    charts: Path | None = None
    chart_kinds: tuple[str, ...] = ("png", "svg")
    theme: str = "light"
    why: bool = False
    """Also show what bounds each case."""
    alpha_beta: tuple[float, float] | None = None
    """Seconds of a message and of a byte, for the model of scaling (see `scaling.curves_of`)."""
    scale_to: int | None = None
    """Processes up to which that model is drawn."""
    fail_on_slower: float | None = None
    """A share, 0.05 for 5%."""

    @property
    def in_full(self) -> bool:
        """Whether more than a screen of findings was asked for."""
        return self.every or self.why or bool(self.only) or self.alpha_beta is not None


def compare_files(paths: Sequence[Path], question: Question, shape: Shape) -> int:
    """Print what the rows in `paths` say, draw charts where asked; returns the exit code.

    Raises UserError where no row can be read, or the question names nothing that is there.
    """
    if shape.fail_on_slower is not None and question.baseline is None:
        raise UserError("--fail-on-slower needs --baseline (and --by): slower than what?")
    if shape.fail_on_slower is not None and metric_named(question.metric).by_loss:
        raise UserError("--fail-on-slower is no gate for accuracy: half a point of it is what its verdicts judge")
    loaded = asked(paths, question)
    suites = {str(name).lower() for name in loaded.frame["suite"].unique()}
    if shape.only.lower() in suites:
        loaded = replace(loaded, frame=loaded.frame[loaded.frame["suite"].str.lower() == shape.only.lower()])
    result = answer_of(loaded, question)
    views = views_of(loaded.frame, shape.alpha_beta, shape.scale_to)
    if shape.only and shape.only.lower() not in suites:
        result, views = _of_card(result, shape.only, suites), Views(loaded.frame)  # curves are of suites
    findings = findings_of(result, views)
    if shape.table == "terminal":
        _print(result, views, findings, _files(paths), shape)
    else:
        from gpubench.comparing.table import print_problems
        from gpubench.show.formats import FORMATS, rendered

        if shape.table not in FORMATS:
            raise UserError(f"--format {shape.table}: there is terminal, {', '.join(FORMATS)}")
        print_problems(result)
        print(rendered(result, shape.table, findings), end="")
    if shape.charts is not None:
        for line in _draw(result, views, findings, paths, question, shape, shape.charts):
            print(line, file=sys.stdout if shape.table == "terminal" else sys.stderr)
    if shape.fail_on_slower is not None:
        from gpubench.analysis.gate import gate
        from gpubench.comparing.table import print_gate

        code, lines = gate(result, shape.fail_on_slower)
        print_gate(lines)
        return code
    return 0 if result.comparisons or result.ladders or _scales(views) else NOTHING_COMPARABLE


def _scales(views: Views) -> bool:
    return bool(views.curves or views.sums or views.held)


def _print(result: Result, views: Views, findings: Sequence[Finding], files: int, shape: Shape) -> None:
    """The findings on a screen; everything below them where it was asked for, or where nothing was found."""
    from gpubench.comparing.scaleview import print_scaling
    from gpubench.comparing.table import console_of_output, print_problems, print_result

    in_full = shape.in_full or not findings
    if findings:
        rows, left_out = len(views.frame), len(result.left_out)
        answer = Answer(tuple(findings), files, rows, result.failed, left_out, result.metric.gain, in_full)
        print(*screen(answer), sep="\n")
    if not in_full:
        print_problems(result)
        return
    if findings:
        print()
    print_result(result, why=shape.why, sees_more=_scales(views))
    if _scales(views):
        print_scaling(views.curves, views.sums, views.held, console_of_output())


def _draw(
    result: Result,
    views: Views,
    findings: Sequence[Finding],
    paths: Sequence[Path],
    question: Question,
    shape: Shape,
    folder: Path,
) -> list[str]:
    """The pictures of the findings, of ladders and of scaling; with --all, or without findings, all there are."""
    from gpubench.comparing import plot
    from gpubench.comparing.carrying import Rows
    from gpubench.comparing.scaleview import draw_scaling, origin_of
    from gpubench.show import charts

    rows = Rows(paths, question.where)
    lines = charts.draw(findings, folder, rows.table, shape.chart_kinds, shape.theme)
    others = result if shape.in_full or not lines else replace(result, groups=[])
    lines += plot.draw(others, folder, rows, shape.chart_kinds, shape.theme)
    if _scales(views):
        drawn = views.curves, views.sums, views.held
        lines += draw_scaling(*drawn, folder, shape.chart_kinds, shape.theme, rows, origin_of(views.frame))
    return lines


def _files(paths: Sequence[Path]) -> int:
    """How many files were given; a folder stands for those in it."""
    return sum(len(list(path.glob("*.csv"))) if path.is_dir() else 1 for path in paths)


def _of_card(result: Result, name: str, suites: Collection[str]) -> Result:
    """What is of a card that has this in its name, and what it is compared with. Raises UserError without any."""

    def fits(cell: Cell) -> bool:
        return name.lower() in cell.label.lower()

    groups = []
    for group in result.groups:
        kept = [c for c in group.comparisons if fits(c.subject) or fits(c.other)]
        beside = {id(cell) for c in kept for cell in (c.subject, c.other)}
        cells = [cell for cell in group.cells if fits(cell) or id(cell) in beside]
        means = [mean for mean in group.means if name.lower() in f"{mean.subject_name} {mean.other_name}".lower()]
        holes = [cell for cell in group.holes if fits(cell)]
        if cells or holes:
            groups.append(replace(group, cells=cells, comparisons=kept, means=means, holes=holes))
    if not groups:
        there = [*sorted(suites), *sorted({cell.label for group in result.groups for cell in group.cases})]
        raise UserError(f"--only {name}: there is {', '.join(there)}{did_you_mean(name, there)}")
    ladders = [ladder for ladder in result.ladders if name.lower() in ladder.name.lower()]
    left_out = [line for line in result.left_out if name.lower() in line.lower()]
    return replace(result, groups=groups, ladders=ladders, left_out=left_out)
