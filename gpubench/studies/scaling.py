"""Scaling: what more processes gain, and what a larger batch costs in accuracy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from gpubench.analysis.cells import completed, once
from gpubench.comparing.scaling import Curve, Held, Sums, curves_of, held_of, sums_of
from gpubench.studies.finding import Finding


@dataclass(frozen=True)
class Views:
    """What rows of several processes, and of large batches, show."""

    frame: pd.DataFrame
    curves: Sequence[Curve] = ()
    sums: Sequence[Sums] = ()
    held: Sequence[Held] = ()


def views_of(frame: pd.DataFrame, alpha_beta: tuple[float, float] | None = None, to: int | None = None) -> Views:
    """All of it; nothing where no row is of several processes or has an accuracy by its batch."""
    if not (frame["processes"] > 1).any() and not frame["params"].str.contains("global_batch=", regex=False).any():
        return Views(frame)
    own = once(completed(frame), [])
    return Views(own, curves_of(own, alpha_beta, to), sums_of(own), held_of(own))


def findings(views: Views) -> Iterator[Finding]:
    """The rate at the most processes over that at the fewest; the accuracy at the largest batch and at the least."""
    for curve in views.curves:
        measured = [point for point in curve.points if not point.model]
        first, last = measured[0], measured[-1]
        case, _, rest = curve.title.partition(", ")
        suite, *model = case.split()
        card, _, more = rest.partition(", ")
        yield Finding(
            kind="scaling",
            suite=suite,
            subject=f"{last.processes} processes",
            baseline=str(first.processes),
            value=last.rate / first.rate,
            interval=None,
            verdict=f"{last.efficiency:.0%} kept",
            models=(" ".join(model),),
            trials=(last.trials, first.trials),
            place=card,
            facts={"more": more},
        )
    for recipe in views.held:
        if len(recipe.points) < 2:
            continue
        (small, before, few), (large, after, many) = recipe.points[0], recipe.points[-1]
        yield Finding(
            kind="batch",
            suite="largebatch",
            subject=f"batch {large:,.0f}",
            baseline=f"{small:,.0f}",
            value=after / before if before else 1.0,
            interval=None,
            verdict="one run" if min(few, many) == 1 else "no test",
            models=(recipe.title,),
            trials=(many, few),
            figure=f"{(after - before) * 100:+.1f} pt",
        )
