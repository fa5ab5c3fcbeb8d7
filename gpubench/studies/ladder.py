"""Ladders: what all steps together gained, from the first rung to the last that reached its goal."""

from collections.abc import Iterator

from gpubench.analysis.compare import Result
from gpubench.studies.finding import Finding


def findings(result: Result) -> Iterator[Finding]:
    """One for each ladder of two rungs or more."""
    for ladder in result.ladders:
        rungs = [rung for rung in ladder.rungs if rung.success_rate is None or rung.success_rate > 0]
        if len(rungs) < 2:
            continue
        first, last = rungs[0], rungs[-1]
        fewest = min(len(rung.seconds) for rung in rungs)
        label, _, precision = ladder.name.rpartition(" ")
        yield Finding(
            kind="ladder",
            suite=ladder.suite,
            subject=last.model,
            baseline=first.model,
            value=first.median / last.median,
            interval=None,
            verdict="one run" if fewest == 1 else "no test",
            models=(f"{len(rungs)} steps",),
            trials=(len(last.seconds), len(first.seconds)),
            precision=precision,
            place=label,
            facts={"kind": ladder.kind.rpartition(", ")[2], "settings": ladder.settings},
        )
