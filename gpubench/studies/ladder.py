"""Ladders: what all steps together gained, from the first rung to the last."""

from collections.abc import Iterator

from gpubench.comparing.compare import Result
from gpubench.studies.finding import Finding
from gpubench.studies.pairs import plain


def findings(result: Result) -> Iterator[Finding]:
    """One for each ladder of two rungs or more."""
    for ladder in result.ladders:
        if len(ladder.rungs) < 2:
            continue
        first, last = ladder.rungs[0], ladder.rungs[-1]
        fewest = min(len(rung.seconds) for rung in ladder.rungs)
        label, _, precision = ladder.name.rpartition(" ")
        yield Finding(
            kind="ladder",
            suite=ladder.suite,
            subject=last.model,
            baseline=first.model,
            where=f"in {precision} on {plain(label)}",
            value=first.median / last.median,
            interval=None,
            verdict="one run" if fewest == 1 else "no test",
            models=(f"{len(ladder.rungs)} steps",),
            trials=fewest,
            settings=ladder.settings,
        )
