"""Pairs: this card, precision, version, trick over that one, pooled over the models that both have."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpubench.comparing import stats
from gpubench.comparing.compare import Comparison, Group, Result
from gpubench.comparing.matching import FULL, TWIN_POLICIES
from gpubench.comparing.means import Mean
from gpubench.comparing.questions import SECONDS
from gpubench.studies.finding import Finding, Part

KINDS = {"card": "card", "precision": "precision", "model": "trick"}
ONE_RUN = {"one trial": "one run"}


def findings(result: Result) -> Iterator[Finding]:
    """Of each group the comparisons that differ in their model alone, as one."""
    for group in result.groups:
        pooled: dict[tuple[str, ...], list[Comparison]] = defaultdict(list)
        for c in group.comparisons:
            if c.subject.batch_policy in TWIN_POLICIES:
                continue  # it tells the batch's part of a speedup, which is another question
            place = c.subject.label if c.axis != "card" else ""
            precision = str(c.subject.precision) if c.axis != "precision" else ""
            pooled[c.axis, c.subject_name, c.other_name, place, precision].append(c)
        for (_, _, _, place, precision), own in pooled.items():
            yield _finding(group, own, place, precision, result)


def _finding(group: Group, own: Sequence[Comparison], place: str, precision: str, result: Result) -> Finding:
    c = own[0]
    kind = KINDS.get(c.axis, "other")
    by_loss = result.metric.by_loss
    ratios = [each.ratio if by_loss else each.ratio.inverse for each in own]
    value, interval = stats.geometric_mean([ratio.value for ratio in ratios]), None
    if len(own) == 1 and ratios[0].low and ratios[0].high:
        interval = ratios[0].low, ratios[0].high
    elif mean := _mean(group, c):
        value, interval = mean.inverse.value or value, mean.inverse.interval
    in_precision = "" if not precision else precision if precision in FULL else _mixed(group, precision)
    where = [f"in {in_precision}"] if in_precision and kind != "trick" else []
    where += [f"on {plain(place)}"] if place else []
    return Finding(
        kind=kind,
        suite=str(c.subject.suite),
        subject=plain(c.subject_name) if kind != "precision" else _mixed(group, c.subject_name).split()[0],
        baseline=plain(c.other_name),
        where=" ".join(where),
        value=value,
        interval=interval,
        verdict=_verdict([each.verdict for each in own]),
        models=tuple(dict.fromkeys(str(each.subject.model) for each in own)) if kind != "trick" else ("",),
        trials=min(min(each.subject.trials, each.other.trials) for each in own),
        settings=str(c.subject.row["params"]),
        parts=tuple(
            Part(
                str(each.subject.model),
                result.metric.shown(each.subject.median),
                result.metric.shown(each.other.median),
                ratio.value,
            )
            for each, ratio in zip(own, ratios, strict=True)
        ),
        of_seconds=result.metric is SECONDS,
        best=result.metric.words,
    )


def _mean(group: Group, c: Comparison) -> Mean | None:
    for mean in group.means:
        names = (mean.axis, mean.subject_name, mean.other_name)
        same = (mean.precision, mean.batch_policy) == (str(c.subject.precision), str(c.subject.batch_policy))
        if same and names == (c.axis, c.subject_name, c.other_name):
            return mean
    return None


def _mixed(group: Group, precision: str) -> str:
    """`mixed precision` for a long name, where no other is there that it could mean."""
    others = {str(cell.precision) for cell in group.cells} - FULL
    return "mixed precision" if others == {precision} and "-" in precision else precision


def _verdict(verdicts: Sequence[str]) -> str:
    """What all models agree in; else nobody is sure."""
    found = {ONE_RUN.get(each, each) for each in verdicts}
    return found.pop() if len(found) == 1 else "unsure"


def plain(label: str) -> str:
    """A card's label without the name of who measured it."""
    return re.sub(r" \([^()]*\)$", "", label) if not label.endswith("GiB)") else label
