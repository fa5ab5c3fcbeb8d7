"""Scaling: what more processes gain, and what a larger batch costs in accuracy."""

from collections.abc import Iterator, Sequence

from gpubench.comparing.scaling import Curve, Held
from gpubench.studies.finding import Finding


def findings(curves: Sequence[Curve], held: Sequence[Held]) -> Iterator[Finding]:
    """The rate at the most processes over that at the fewest; the accuracy at the largest batch and at the least."""
    for curve in curves:
        measured = [point for point in curve.points if not point.model]
        first, last = measured[0], measured[-1]
        title = curve.title.split(", ")[0].split()
        yield Finding(
            kind="scaling",
            suite=title[0],
            subject=f"{last.processes} processes",
            baseline=f"{first.processes}",
            where="",
            value=last.rate / first.rate,
            interval=None,
            verdict=f"{last.efficiency:.0%} kept",
            models=(" ".join(title[1:]),),
            trials=min(first.trials, last.trials),
        )
    for recipe in held:
        (small, before, _), (large, after, trials) = recipe.points[0], recipe.points[-1]
        yield Finding(
            kind="batch",
            suite="largebatch",
            subject=f"batch {large:,.0f}",
            baseline=f"{small:,.0f}",
            where=recipe.title,
            value=after / before,
            interval=None,
            verdict="one run" if trials == 1 else "no test",
            models=("accuracy",),
            trials=trials,
            figure=f"{(after - before) * 100:+.1f} pt",
        )
