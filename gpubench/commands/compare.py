"""`gpubench compare`: what was found in some files, and on request every case, chart and format."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from gpubench.comparing.cells import completed, once
from gpubench.comparing.compare import Question, Result, answer_of, asked
from gpubench.comparing.questions import metric_named
from gpubench.errors import UserError
from gpubench.loading import Loaded
from gpubench.show.terminal import screen
from gpubench.studies.answer import Answer, findings_of

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
    if shape.only:
        loaded = _of_suite(loaded, shape.only)
    result = answer_of(loaded, question)
    if shape.only:
        result = _of_card(result, shape.only)
    from gpubench.comparing.table import console_of_output, print_gate, print_problems, print_result

    a_card = bool(shape.only) and shape.only.lower() not in set(loaded.frame["suite"].str.lower())
    scales = _of_several_processes(loaded.frame) and not a_card  # curves are of suites
    frame, curves, sums, held = loaded.frame, [], [], []
    if scales:
        from gpubench.comparing.scaling import curves_of, held_of, sums_of

        frame = once(completed(loaded.frame), [])
        curves, sums, held = curves_of(frame, shape.alpha_beta, shape.scale_to), sums_of(frame), held_of(frame)
    findings = findings_of(result, curves, held)
    if shape.table == "terminal":
        if findings:
            answer = Answer(tuple(findings), len(paths), len(loaded.frame), result.failed, result.metric.gain)
            for line in screen(answer):
                print(line)
        if shape.in_full or not findings:
            print() if findings else None
            print_result(result, why=shape.why, sees_more=scales)
        else:
            print_problems(result)
    else:
        from gpubench.show.formats import FORMATS, rendered

        if shape.table not in FORMATS:
            raise UserError(f"--format {shape.table}: there is terminal, {', '.join(FORMATS)}")
        print_problems(result)
        print(rendered(result, shape.table, findings), end="")
    lines: list[str] = []
    if shape.charts is not None:
        from gpubench.comparing.carrying import Rows
        from gpubench.comparing.plot import draw

        rows = Rows(paths, question.where)
        lines = draw(result, shape.charts, rows, shape.chart_kinds, shape.theme)
    if scales:
        from gpubench.comparing.scaleview import draw_scaling, origin_of, print_scaling

        if shape.table == "terminal" and (shape.in_full or not findings):
            print_scaling(curves, sums, held, console_of_output())
        if shape.charts is not None:
            views = curves, sums, held, shape.charts, shape.chart_kinds, shape.theme, rows, origin_of(frame)
            lines += draw_scaling(*views)
    for line in lines:
        print(line, file=sys.stdout if shape.table == "terminal" else sys.stderr)
    if shape.fail_on_slower is not None:
        from gpubench.comparing.gate import gate

        code, lines = gate(result, shape.fail_on_slower)
        print_gate(lines)
        return code
    return 0 if result.comparisons or result.ladders or scales else NOTHING_COMPARABLE


def _of_several_processes(frame: pd.DataFrame) -> bool:
    """Whether there is anything for the views of scaling, whose imports take their time."""
    return bool(((frame["processes"] > 1) | frame["suite"].isin(["scaling", "largebatch"])).any())


def _of_suite(loaded: Loaded, name: str) -> Loaded:
    """The rows of the suite of this name, or all of them where it is no suite's."""
    own = loaded.frame[loaded.frame["suite"].str.lower() == name.lower()]
    return replace(loaded, frame=own) if len(own) else loaded


def _of_card(result: Result, name: str) -> Result:
    """The groups in which a card has this in its name; all where it is a suite's. Raises UserError without any."""
    suites = {str(cell.suite) for group in result.groups for cell in group.cases}
    if name.lower() in {each.lower() for each in suites}:
        return result
    groups = [group for group in result.groups if any(name.lower() in cell.label.lower() for cell in group.cases)]
    if not groups:
        labels = {cell.label for group in result.groups for cell in group.cases}
        raise UserError(f"--only {name}: there is {', '.join([*sorted(suites), *sorted(labels)])}")
    ladders = [ladder for ladder in result.ladders if name.lower() in ladder.name.lower()]
    left_out = [line for line in result.left_out if name.lower() in line.lower()]
    return replace(result, groups=groups, ladders=ladders, left_out=left_out)
