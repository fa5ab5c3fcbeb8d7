"""Measure how well the speed ratios of `gpubench cards` predict sources that they have not seen.

    python benchmarks/cards_model.py

Leaves out each source in turn, and predicts the ratio of each pair of its cards on each of its workloads from the other
sources and the data sheets. Prints the errors and the share of workloads in the intervals. Each source has the same
weight, however many workloads it has. The widths that contain exactly 90% and half of the workloads are those of
gpubench/studies/cards/ratio.py. The coverage is computed a second time with widths from all other sources: so a source
has no influence on the widths by which it is judged.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from gpubench.studies.cards.figures import CLASSES, FigureGroup, published
from gpubench.studies.cards.ratio import WORKLOADS_50, WORKLOADS_90, SpeedRatio, Speeds, listed_speed


@dataclass(frozen=True)
class Error:
    """A ratio of a left-out source, and its prediction from the other sources."""

    source: str
    log: float
    """Logarithm of measured over predicted."""
    listed_log: float
    """The same for the data sheets alone."""
    scale: float
    """1 + |log ratio|: by how much its interval is wider than that of equally fast cards."""
    is_measured: bool
    """Whether another source has both cards."""


def errors_of(groups: Sequence[FigureGroup]) -> Iterator[Error]:
    """Yield the error of each pair of cards on each workload, its source left out."""
    for source in sorted({group.source for group in groups}):
        rest = [group for group in groups if group.source != source]
        by_recipe: dict[tuple[str, ...], list[FigureGroup]] = defaultdict(list)
        for group in groups:
            if group.source == source:
                by_recipe[group.recipe].append(group)
        speeds = {kind: Speeds(rest, kind) for kind in CLASSES}
        predictions: dict[tuple[str, str, str], SpeedRatio] = {}
        for members in by_recipe.values():
            for one, two in combinations(members, 2):
                if one.card == two.card:
                    continue
                cards = one.card, two.card, one.kind
                if cards not in predictions:
                    predictions[cards] = speeds[one.kind].ratio(one.card, two.card)
                predicted, measured = predictions[cards], math.log(one.speed / two.speed)
                yield Error(
                    source,
                    measured - math.log(predicted.value),
                    measured - listed_speed(one.card, one.kind) + listed_speed(two.card, one.kind),
                    1 + abs(math.log(predicted.value)),
                    predicted.sources > 0,
                )


def weights(errors: Sequence[Error]) -> list[float]:
    """Return the weight of each error, so that each source has the same total."""
    counts = Counter(error.source for error in errors)
    return [1 / len(counts) / counts[error.source] for error in errors]


def quantile(errors: Sequence[Error], share: float) -> float:
    """Return the width that contains this share of the errors."""
    total = 0.0
    ordered = sorted(zip([abs(error.log) / error.scale for error in errors], weights(errors), strict=True))
    for width, weight in ordered:
        total += weight
        if total >= share:
            return width
    return ordered[-1][0]


def coverage(errors: Sequence[Error], width: float) -> float:
    """Return the share of errors inside of an interval of this width."""
    return sum(
        weight for error, weight in zip(errors, weights(errors), strict=True) if abs(error.log) <= width * error.scale
    )


def coverage_of_new_sources(errors: Sequence[Error], share: float) -> float:
    """Return the mean coverage of a source by a width that the other sources gave."""
    by_source: dict[str, list[Error]] = defaultdict(list)
    for error in errors:
        by_source[error.source].append(error)
    return statistics.fmean(
        coverage(inside, quantile([error for error in errors if error.source != source], share))
        for source, inside in by_source.items()
    )


def main() -> None:
    """Print errors, widths and coverages."""
    errors = list(errors_of(published().groups))
    print(f"{len(errors)} ratios of {len({error.source for error in errors})} sources")
    for name, some in (
        ("all", errors),
        ("another source has both cards", [error for error in errors if error.is_measured]),
        ("data sheets alone", [error for error in errors if not error.is_measured]),
    ):
        medians = (statistics.median(abs(getattr(error, by)) for error in some) for by in ("log", "listed_log"))
        print(f"{name}: {len(some)} ratios, median error {next(medians):.3f}, by data sheets {next(medians):.3f};")
        covered = [f"{coverage(some, width):.1%} in {width}" for width in (WORKLOADS_90, WORKLOADS_50)]
        print(f"  {', '.join(covered)}; each pair alike: {_each_alike(some):.1%}")
    for share in (0.9, 0.5):
        new = coverage_of_new_sources(errors, share)
        print(f"width for {share:.0%}: {quantile(errors, share):.3f}; it contains {new:.1%} of a new source")


def _each_alike(errors: Sequence[Error]) -> float:
    return statistics.fmean(abs(error.log) <= WORKLOADS_90 * error.scale for error in errors)


if __name__ == "__main__":
    main()
