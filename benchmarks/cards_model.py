"""Fit the spreads of the model of published speeds, and check it with spreads that were fitted without what is checked.

    python benchmarks/cards_model.py            # fit and write spreads.toml, then the check over cards: 3 minutes
    python benchmarks/cards_model.py --check    # only the checks, over cards and over sources: 10 minutes

The spreads maximise the likelihood times log-normal priors (median 0.1: wide for effects, within a factor of 4 for
sources, of which some have few figures). The check leaves out a tenth of the cards (or a source), fits the spreads to
the rest, and predicts each figure of what was left out from all other figures with those spreads. What intervals lack
is made up by one factor, for each fold found from the other folds.
"""

import argparse
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from gpubench.studies.cards.figures import FigureGroup, published
from gpubench.studies.cards.model import EFFECTS, NORMAL_90, Spreads, centred, covariance, fixed_part, shared

MEDIAN = math.log(0.1)
"""Logarithm of the median of both priors."""
WIDE_EFFECT, WIDE_SOURCE = 2.0, 0.7
"""Standard deviations of the logarithm of a spread."""
FOLDS = 10
LEFT_OUT = {
    "figure": "one figure",
    "source": "all that a source says of a card",
    "card": "all that is known of a card",
}
"""What is left out at once."""
BLOCKS: dict[str, Callable[[FigureGroup], Hashable]] = {
    "figure": lambda group: (group.card, group.recipe, group.software),
    "source": lambda group: (group.card, group.source),
    "card": lambda group: group.card,
}
"""By the same names: groups for which it returns the same are left out together."""


@dataclass(frozen=True)
class Error:
    """A figure that was left out, and its prediction error."""

    group: FigureGroup
    log: float
    """Logarithm of measured over predicted."""
    deviation: float
    """The standard deviation of `log` by the model."""

    @property
    def share(self) -> float:
        """0.1: 10% more or less than predicted."""
        return abs(math.expm1(self.log))

    @property
    def held(self) -> bool:
        """Whether the figure lies in its 90% interval."""
        return abs(self.log) < NORMAL_90 * self.deviation


@dataclass(frozen=True)
class Score:
    """Several errors in four numbers."""

    figures: int
    median: float
    ninth: float
    """Nine of ten are at most so large."""
    held: float
    """The share within their 90% intervals."""


def errors_of(groups: Sequence[FigureGroup], spreads: Spreads, what: str) -> list[Error]:
    """Return the errors where `what`, one of LEFT_OUT, is left out, of figures that others can predict.

    Another figure of the card in its class has to be left, or another source of the card. A whole card needs neither:
    its architecture and its memory bandwidth predict it.
    """
    others: dict[Hashable, set[Hashable]] = defaultdict(set)
    blocks: dict[Hashable, list[int]] = defaultdict(list)
    for at, group in enumerate(groups):
        others[group.card, group.kind].add((group.recipe, group.software))
        others[group.card].add(group.source)
        blocks[BLOCKS[what](group)].append(at)
    enough: dict[str, Callable[[FigureGroup], bool]] = {
        "figure": lambda group: len(others[group.card, group.kind]) > 1,
        "source": lambda group: len(others[group.card]) > 1,
        "card": lambda group: True,
    }
    logs, deviations = left_out(groups, spreads, list(blocks.values()))
    return [
        Error(group, float(log), float(deviation))
        for group, log, deviation in zip(groups, logs, deviations, strict=True)
        if enough[what](group)
    ]


def left_out(
    groups: Sequence[FigureGroup], spreads: Spreads, blocks: Sequence[Sequence[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """For groups that are left out block by block: measured less predicted, and the deviation of that.

    Both are logarithms, in closed form (Rasmussen and Williams 2006, section 5.4.2). A group in no block has NaN.
    """
    precision = np.linalg.inv(covariance(groups, spreads))
    weights = precision @ centred(groups)
    errors, deviations = np.full(len(groups), np.nan), np.full(len(groups), np.nan)
    for block in blocks:
        spread = np.linalg.inv(precision[np.ix_(block, block)])
        errors[block] = spread @ weights[block]
        deviations[block] = spreads.widening * np.sqrt(np.diag(spread))
    return errors, deviations


def judged(errors: Sequence[Error]) -> Score:
    """Return the median and the 90th percentile of the errors, and the share in their intervals."""
    shares = sorted(error.share for error in errors)
    return Score(
        figures=len(shares),
        median=statistics.median(shares),
        ninth=shares[math.ceil(0.9 * len(shares)) - 1],
        held=sum(error.held for error in errors) / len(errors),
    )


def fit(groups: Sequence[FigureGroup]) -> Spreads:
    """The spreads that these groups make most likely."""
    names, sources = list(EFFECTS), sorted({group.source for group in groups})
    place = np.array([sources.index(group.source) for group in groups])
    fixed = fixed_part(groups)
    alike = [shared([key(group) for group in groups]) for key in EFFECTS.values()]
    values = centred(groups)
    width = np.array([WIDE_EFFECT] * len(names) + [WIDE_SOURCE] * len(sources))
    diagonal = np.diag_indices(len(groups))

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the logarithm of the posterior density, and its gradient."""
        variances = np.exp(2 * logs)
        matrix = fixed.copy()
        for variance, one in zip(variances, alike, strict=False):
            matrix += variance * one
        noise = variances[len(names) :][place]
        matrix[diagonal] += noise
        factor = cho_factor(matrix, lower=True)
        inverse = cho_solve(factor, np.eye(len(groups)))
        weights = inverse @ values
        distance = (logs - MEDIAN) / width
        density = 0.5 * values @ weights + np.log(np.diag(factor[0])).sum() + 0.5 * distance @ distance
        slope = inverse - np.outer(weights, weights)
        of_effects = [variance * (slope * one).sum() for variance, one in zip(variances, alike, strict=False)]
        of_sources = np.bincount(place, np.diag(slope) * noise, len(sources))
        return density, np.concatenate([of_effects, of_sources]) + distance / width

    start = np.full(len(width), MEDIAN)
    start[names.index("architecture_class")] = math.log(0.5)
    bounds = [(-6.0, 1.5)] * len(start)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 100})
    spreads = np.exp(found.x)
    own = dict(zip(sources, spreads[len(names) :].tolist(), strict=True))
    return Spreads(dict(zip(names, spreads.tolist(), strict=False)), own, statistics.median(own.values()))


def cross_validated(groups: Sequence[FigureGroup], by: str) -> dict[str, list[list[Error]]]:
    """Errors fold by fold: spreads are fitted without a tenth of the cards, or without a source, and predict it."""
    names = sorted({getattr(group, by) for group in groups})
    folds = [names[at::FOLDS] for at in range(FOLDS)] if by == "card" else [[name] for name in names]
    found: dict[str, list[list[Error]]] = {what: [] for what in LEFT_OUT}
    for fold in folds:
        started = time.monotonic()
        spreads = fit([group for group in groups if getattr(group, by) not in fold])
        for what, errors in found.items():
            errors.append([error for error in errors_of(groups, spreads, what) if getattr(error.group, by) in fold])
        print(f"  without {', '.join(fold)[:60]}: {time.monotonic() - started:.0f} s", flush=True)
    return found


def widening_for(folds: Sequence[Sequence[Error]]) -> float:
    """By what intervals are to be multiplied so that nine of ten of these errors lie in theirs."""
    return float(np.quantile([abs(each.log / each.deviation) for fold in folds for each in fold], 0.9) / NORMAL_90)


def widened(folds: Sequence[Sequence[Error]], widening: float | None) -> list[Error]:
    """Errors with intervals that are wider; without a widening, of each fold by what the other folds ask for."""
    found = []
    for at, fold in enumerate(folds):
        factor = widening or widening_for([other for place, other in enumerate(folds) if place != at])
        found += [replace(each, deviation=each.deviation * factor) for each in fold]
    return found


def written(spreads: Spreads, check: Score, of_sources: Score) -> str:
    """The text of spreads.toml."""
    lines = [
        "# Standard deviations of the logarithm of a published speed: made by benchmarks/cards_model.py from",
        "# public_speeds.csv and data_sheets.csv. Make it anew after a change of either.",
        "",
        f"usual_source = {spreads.usual_source:.4f}",
        "# By what intervals are multiplied: found with spreads that were fitted without the cards that they predict.",
        f"widening = {spreads.widening:.3f}",
        "",
        "[effects]",
        *(f"{name} = {value:.4f}" for name, value in spreads.effects.items()),
        "",
        "[sources]",
        *(f'"{name}" = {value:.4f}' for name, value in spreads.sources.items()),
        "",
        "# Each figure left out alone, with spreads and widening that were fitted without its card; `source`: left out",
        "# with all that its source says of the card.",
        "[cross_validated]",
        f"figures = {check.figures}",
        f"median_error = {check.median:.4f}",
        f"in_interval = {check.held:.4f}",
        f"median_error_source = {of_sources.median:.4f}",
        f"in_interval_source = {of_sources.held:.4f}",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; check over sources too")
    arguments = parser.parse_args()
    groups = published().groups
    over_cards = cross_validated(groups, "card")
    widening = widening_for(over_cards["figure"])
    print(f"widening {widening:.3f}")
    checks = {"card": over_cards} | ({"source": cross_validated(groups, "source")} if arguments.check else {})
    for by, found in checks.items():
        for what, folds in found.items():
            score = judged(widened(folds, None if by == "card" else widening))
            print(f"spreads without the {by}, {LEFT_OUT[what]} left out: median error {score.median:.1%}, nine of ten")
            print(f"  within {score.ninth:.0%}, {score.held:.1%} in their 90% interval ({score.figures} figures)")
    if not arguments.check:
        scores = [judged(widened(over_cards[what], None)) for what in ("figure", "source")]
        path = Path(str(files("gpubench.studies.cards") / "spreads.toml"))
        path.write_text(written(replace(fit(groups), widening=widening), *scores), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
