"""Measures error rates of verdicts: simulates sessions with known ratios, and judges them by the code of `compare`.

    python benchmarks/simulation.py            # four minutes; prints the tables of docs/research/tested.md
    python benchmarks/simulation.py power hosts --count 200

A trial's time is the product of its case's effect, a process effect of the given sd, and the mean of LAPS laps of half
that sd. `rough` sessions also drift by twice the sd from first to last round, and one trial in 20 takes 5 to 25%
longer. tests/test_simulation.py tests each bound at a smaller size.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, median
from typing import Any

from gpubench.analysis import stats
from gpubench.analysis.gate import surely_above
from gpubench.analysis.groups import Group
from gpubench.analysis.verdicts import out_of_turn
from gpubench.data.images import FilesRead, Spec
from gpubench.interval import median_interval
from gpubench.runner.rounds import half_width
from gpubench.suite.trial import Mode
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.sampling import sampling_for
from gpubench.welch import LOOKS, is_decided_early

SDS = (0.003, 0.01, 0.02, 0.044)
"""Standard deviations between processes of a quiet card, a usual one, a busy host, and a shared two-core CPU."""
LAPS = 20
DRIFT_IN_SDS = 2.0
OUTLIERS, OUTLIER = 0.05, (0.05, 0.25)
NUMBERS = (6, 8, 10, 15, 20, 30, 50)
RESTLESS_SDS, SLOWDOWNS = (0.09, 0.14), (0.2, 0.25, 0.5)
"""Standard deviations on CPUs with other tenants, and slowdowns that are large enough to be found there."""
FOUND = {"faster", "slower"}


@dataclass(frozen=True)
class Noise:
    """How trials of one case scatter; all in log seconds."""

    sd: float
    rough: bool = False
    modes: float = 0.0
    """Every trial falls into one of two modes that are this far apart."""
    shape: str = "normal"
    """Distribution of process effects: `normal`, `t3` (heavy tails), `lognormal` (skewed), `ties` (grid of one sd)."""
    memory: float = 0.0
    """Autocorrelation of successive process effects (AR(1)): the host drifts slowly."""

    def draw(self, dice: Random) -> float:
        """Return a random process effect, of standard deviation `sd`."""
        if self.shape == "t3":
            return self.sd * dice.gauss(0, 1) / math.sqrt(sum(dice.gauss(0, 1) ** 2 for _ in range(3)))
        if self.shape == "lognormal":
            return self.sd * (dice.lognormvariate(0, 1) - 1) / math.sqrt(math.e * (math.e - 1))
        return dice.gauss(0, self.sd)


def session(dice: Random, rounds: int, noise: Noise, effects: Sequence[float] = (0.0, 0.0)) -> list[list[float]]:
    """Return the seconds of the trials of each case, from interleaved rounds in random order."""
    drift = dice.choice((-1, 1)) * DRIFT_IN_SDS * noise.sd if noise.rough else 0.0
    times: list[list[float]] = [[] for _ in effects]
    total = rounds * len(effects)
    host = noise.draw(dice) if noise.memory else 0.0
    for index in range(rounds):
        for place, case in enumerate(dice.sample(range(len(effects)), len(effects))):
            when = (index * len(effects) + place) / total
            if noise.memory:
                host = noise.memory * host + math.sqrt(1 - noise.memory**2) * noise.draw(dice)
            times[case].append(one_trial(dice, noise, effects[case] + drift * when + host))
    return times


def one_trial(dice: Random, noise: Noise, level: float) -> float:
    """Return the seconds of one process; `level` is the log of its case's expected seconds."""
    own = 0.0 if noise.memory else noise.draw(dice)
    level += own + dice.gauss(0, noise.sd / 2 / math.sqrt(LAPS))
    if noise.modes:
        level += dice.choice((0, noise.modes))
    if noise.rough and dice.random() < OUTLIERS:
        level += dice.uniform(*OUTLIER)
    return math.exp(round(level / noise.sd) * noise.sd if noise.shape == "ties" else level)


@dataclass(frozen=True)
class Outcome:
    """Verdicts and intervals of many comparisons."""

    verdicts: Counter[str]
    covered: float
    """Share of 95% intervals that contain the true ratio."""
    half_width: float
    """Mean half width of these intervals, on the log scale."""

    def share(self, *verdicts: str) -> float:
        """Return the share of comparisons with one of these verdicts."""
        return sum(self.verdicts[v] for v in verdicts) / self.verdicts.total()

    @property
    def found(self) -> float:
        """Share of `faster` and `slower`: false verdicts if there is no true difference, else the power."""
        return self.share(*FOUND)


def judge(count: int, make: Callable[[], tuple[stats.Ratio, int]], effect: float = 0.0) -> Outcome:
    """Judge `count` comparisons; `make` returns a ratio and the number of trials of its smaller side."""
    verdicts: Counter[str] = Counter()
    covered, widths = 0, []
    for _ in range(count):
        ratio, trials = make()
        verdicts[stats.verdict(ratio, ratio.p, trials)] += 1
        if ratio.low and ratio.high:
            covered += math.log(ratio.low) <= effect <= math.log(ratio.high)
            widths.append(math.log(ratio.high / ratio.low) / 2)
    return Outcome(verdicts, covered / count, fmean(widths))


def one_session(count: int, trials: int, noise: Noise, effect: float = 0.0, seed: int = 1) -> Outcome:
    """Judge two cases of one session."""
    dice = Random(f"{seed} {trials} {noise} {effect}")

    def make() -> tuple[stats.Ratio, int]:
        a, b = session(dice, trials, noise, (effect, 0.0))
        return stats.ratio(a, b), trials

    return judge(count, make, effect)


def pooled(count: int, shared: float, effect: float = 0.0, models: int = 4, trials: int = 6) -> Outcome:
    """Judge several models together; `shared` is the part of a trial's variance that the models of its side share.

    There is a verdict only if all models have the same one, as in `studies.pairs`.
    """
    dice, sd = Random(f"pooled {shared} {models} {trials} {effect}"), 0.02

    def side(level: float) -> list[dict[float, float]]:
        noise = [math.sqrt(shared) * dice.gauss(0, sd) for _ in range(trials)]
        own = math.sqrt(1 - shared) * sd
        return [
            {number: math.exp(level + part + dice.gauss(0, own)) for number, part in enumerate(noise)}
            for _ in range(models)
        ]

    verdicts: Counter[str] = Counter()
    covered, widths = 0, []
    for _ in range(count):
        ours, theirs = side(effect), side(0.0)
        ratios = [stats.ratio([*a.values()], [*b.values()]) for a, b in zip(ours, theirs, strict=True)]
        adjusted = stats.holm([ratio.p or 0.0 for ratio in ratios])
        said = {stats.verdict(ratio, p, trials) for ratio, p in zip(ratios, adjusted, strict=True)}
        verdicts[said.pop() if len(said) == 1 else "undecided"] += 1
        low, high = stats.pooled_ratio(ours, theirs).interval or (1.0, 1.0)
        covered += math.log(low) <= effect <= math.log(high)
        widths.append(math.log(high / low) / 2)
    return Outcome(verdicts, covered / count, fmean(widths))


def one_name(count: int, late: int, hours_sd: float, trials: int = 6) -> Outcome:
    """Judge two equal cases of one session name, of which the second starts `late` rounds after the first.

    A round takes 10 minutes. In each half hour the machine has another speed, with a standard deviation of `hours_sd`.
    """
    dice = Random(f"one name {late} {hours_sd} {trials}")

    def make() -> tuple[stats.Ratio, int]:
        levels = [dice.gauss(0, hours_sd) for _ in range(2 + (trials + late) // 3)]
        sides = []
        for first in (0, late):
            seconds = [math.exp(levels[(first + round_) // 3] + dice.gauss(0, 0.01)) for round_ in range(trials)]
            starts = [f"{first + round_:03}{dice.random():.4f}" for round_ in range(trials)]
            sides.append(Group({"session": "night"}, tuple(seconds), "", starts=tuple(starts)))
        a, b = sides
        if out_of_turn(a, b):
            return stats.specimens_ratio([a.values], [b.values]), trials
        return stats.ratio(a.values, b.values), trials

    return judge(count, make)


def unequal(count: int, trials: tuple[int, int], sds: tuple[float, float] = (0.01, 0.08)) -> Outcome:
    """Judge two equal cases of one session whose trials scatter differently (`sds`)."""
    dice = Random(f"unequal {trials} {sds}")

    def make() -> tuple[stats.Ratio, int]:
        a, b = ([math.exp(dice.gauss(0, sd)) for _ in range(n)] for n, sd in zip(trials, sds, strict=True))
        return stats.ratio(a, b), min(trials)

    return judge(count, make)


def median_coverage(count: int, trials: int, noise: Noise) -> tuple[float, float]:
    """Return for intervals of one case's median: the share that contains the true value, and the mean half width."""
    dice = Random(f"median {trials} {noise}")
    intervals = [median_interval(session(dice, trials, noise, (0.0,))[0]) or (0.0, 0.0) for _ in range(count)]
    return fmean(low <= 1 <= high for low, high in intervals), fmean((high - low) / 2 for low, high in intervals)


def between_specimens(
    count: int, sd: float, specimens: int = 1, effect: float = 0.0, modes: float = 0.0, trials: int = 6
) -> Outcome:
    """Judge two card models with `specimens` cards each, which differ by `sd`, or are of two kinds `modes` apart."""
    dice = Random(f"specimens {sd} {specimens} {effect} {modes}")
    noise = Noise(0.01)

    def specimen(level: float) -> list[float]:
        level += dice.gauss(0, sd) + dice.choice((0, modes))
        return session(dice, trials, noise, (level,))[0]

    def make() -> tuple[stats.Ratio, int]:
        a, b = ([specimen(level) for _ in range(specimens)] for level in (effect, 0.0))
        return stats.specimens_ratio(a, b), trials * specimens

    return judge(count, make, effect)


def family(count: int, noise: Noise, size: int = 20, trials: int = 6, effect: float = 0.0) -> tuple[float, float]:
    """Return the share of families with any false verdict, and the share of true effects that were found.

    A family has `size` ratios; the first half of them has the `effect`.
    """
    dice = Random(f"family {noise} {size} {trials} {effect}")
    spoiled = found = 0
    true = size // 2 if effect else 0
    for _ in range(count):
        levels = [effect] * true + [0.0] * (size - true)
        times = session(dice, trials, noise, [*levels, *[0.0] * size])
        ratios = [stats.ratio(a, b) for a, b in zip(times[:size], times[size:], strict=True)]
        adjusted = stats.holm([r.p or 0.0 for r in ratios])
        decided = [stats.verdict(r, p, trials) in FOUND for r, p in zip(ratios, adjusted, strict=True)]
        spoiled += any(decided[true:])
        found += sum(decided[:true])
    return spoiled / count, found / count / true if true else 0.0


def gate(
    count: int,
    noise: Noise,
    size: int,
    trials: int,
    *,
    days: float | None = None,
    slow: float = 0.0,
    all_slow: bool = False,
) -> float:
    """Return the share of calls of `--fail-on-slower 5%` that end with 1.

    There are `size` ratios, of which the first one is slower by `slow`, or all are. With `days`, each side is its own
    session, and `days` is the standard deviation between sessions.
    """
    dice = Random(f"gate {noise} {size} {trials} {days} {slow}{' all' * all_slow}")
    limit = 1.05
    alarms = 0
    for _ in range(count):
        effects = [slow] * size if all_slow else [slow, *[0.0] * (size - 1)]
        if days is None:
            times = session(dice, trials, noise, [*effects, *[0.0] * size])
            ours, theirs = times[:size], times[size:]
        else:
            ours, theirs = (
                session(dice, trials, noise, [effect + day for effect in side])
                for side, day in ((effects, dice.gauss(0, days)), ([0.0] * size, dice.gauss(0, days)))
            )
        together = days is None
        pairs = list(zip(ours, theirs, strict=True))
        test = stats.p_above if together else lambda a, b, limit: stats.specimens_p_above([a], [b], limit)
        ratios = [stats.ratio(a, b) if together else stats.specimens_ratio([a], [b]) for a, b in pairs]
        lows = [ratio.low or 0.0 for ratio in ratios]
        alarms += any(surely_above([test(a, b, limit) for a, b in pairs], lows, limit))
    return alarms / count


def gate_passes(count: int, noise: Noise, trials: int, *, days: float | None = None, slow: float = 0.0) -> float:
    """Return the share of calls of `--fail-on-slower 5%` with one ratio that end with 0; `days` as in `gate`."""
    dice = Random(f"passes {noise} {trials} {days} {slow}")
    passes = 0
    for _ in range(count):
        if days is None:
            ratio = stats.ratio(*session(dice, trials, noise, (slow, 0.0)))
        else:
            a, b = (session(dice, trials, noise, (level + dice.gauss(0, days),))[0] for level in (slow, 0.0))
            ratio = stats.specimens_ratio([a], [b])
        passes += (ratio.high or math.inf) < 1.05
    return passes / count


@dataclass(frozen=True)
class Adaptive:
    """Results of many runs with `--until`."""

    rounds: float
    """Median number of rounds."""
    reached: float
    """Share of runs in which every interval became narrow enough within the budget."""
    covered: float
    """Share of ratio intervals that contain the true ratio."""
    median_covered: float
    """Share of intervals of one case's median that contain its true value."""
    false: float
    """Share of false verdicts."""


def until(count: int, noise: Noise, target: float = 0.01, most: int = 40, corrected: bool = True) -> Adaptive:
    """Simulate rounds of two equal cases until both half widths are at most `target`, or for `most` rounds."""
    dice = Random(f"until {noise} {target}")
    rounds, reached, covered, alone, false = [], 0, 0, 0, 0

    def width(values: Sequence[float]) -> float:
        if corrected:
            return half_width(values)
        low, high = median_interval(values) or (0.0, math.inf)
        return (high - low) / 2 / median(values)

    for _ in range(count):
        # The whole session is simulated, as long as the budget, so that its drift does not depend on the stop.
        a, b = session(dice, most, noise)
        n = next((n for n in range(6, most + 1) if max(width(a[:n]), width(b[:n])) <= target), most)
        a, b = a[:n], b[:n]
        rounds.append(n)
        reached += max(width(a), width(b)) <= target
        ratio = stats.ratio(a, b, until=corrected)
        covered += (ratio.low or 0) <= 1 <= (ratio.high or 0)
        low, high = median_interval(a, corrected) or (0.0, 0.0)
        alone += low <= 1 <= high
        false += stats.verdict(ratio, ratio.p, n) in FOUND
    return Adaptive(median(rounds), reached / count, covered / count, alone / count, false / count)


@dataclass(frozen=True)
class Early:
    """Results of many runs of 6 rounds with looks after 3 and 4."""

    outcome: Outcome
    rounds: float
    """Mean number of rounds."""


def early(count: int, noise: Noise, effect: float = 0.0) -> Early:
    """Judge two cases of a run that ends after three or four rounds if these decide, and otherwise after six."""
    dice = Random(f"early {noise} {effect}")
    rounds = []

    def make() -> tuple[stats.Ratio, int]:
        a, b = session(dice, 6, noise, (effect, 0.0))
        n = next((look for look in LOOKS if is_decided_early(a[:look], b[:look])), 6)
        rounds.append(n)
        return stats.ratio(a[:n], b[:n]), n

    return Early(judge(count, make, effect), fmean(rounds))


def peeking(count: int, noise: Noise, most: int = 40) -> tuple[float, float]:
    """Return two shares of false verdicts for equal cases: after `most` rounds, and after any of the looks before.

    Looks are after each round from the sixth on, as `--repeats 7, 8, ...` on the same file allows.
    """
    dice = Random(f"peeking {noise} {most}")
    once = ever = 0
    for _ in range(count):
        a, b = session(dice, most, noise)
        ratios = ((n, stats.ratio(a[:n], b[:n])) for n in range(most, 5, -1))
        found = (stats.verdict(ratio, ratio.p, n) in FOUND for n, ratio in ratios)
        last = next(found)
        once += last
        ever += last or any(found)
    return once / count, ever / count


@dataclass(frozen=True)
class Naive:
    """Shares of comparisons of equal cases that are judged by a t test over laps."""

    false_p: float
    """Share with p under 5%."""
    false_verdict: float
    """Share with p under 5% and a difference above 2%."""
    covered: float
    """Share of 95% intervals that contain the true ratio."""


def naive(count: int, processes: int, noise: Noise, laps: int = 120) -> Naive:
    """Judge two equal cases with `laps` laps per side from some processes, as if all laps were independent."""
    from scipy.stats import ttest_ind

    dice = Random(f"naive {processes} {noise}")
    small = found = covered = 0

    def side() -> list[float]:
        centers = [dice.gauss(0, noise.sd) for _ in range(processes)]
        return [center + dice.gauss(0, noise.sd / 2) for center in centers for _ in range(laps // processes)]

    for _ in range(count):
        a, b = side(), side()
        test = ttest_ind(a, b, equal_var=False)
        small += test.pvalue < 0.05
        found += test.pvalue < 0.05 and abs(fmean(a) - fmean(b)) > stats.SMALLEST
        interval = test.confidence_interval()
        covered += interval.low <= 0 <= interval.high
    return Naive(small / count, found / count, covered / count)


def point_rule(count: int, trials: int, noise: Noise) -> float:
    """Return the share of false verdicts by a looser rule: Mann-Whitney's p under 5% and a ratio above 2%."""
    dice = Random(f"point {trials} {noise}")
    ratios = [stats.ratio(*session(dice, trials, noise)) for _ in range(count)]
    return fmean((r.p or 0) < 0.05 and abs(math.log(r.value)) > stats.SMALLEST for r in ratios)


def advice(count: int, noise: Noise, effect: float) -> tuple[float, float]:
    """Return the median advised trials per side after an undecided session of 6, and the share that then decides."""
    dice = Random(f"advice {noise} {effect}")
    numbers, decided = [], 0
    while len(numbers) < count:
        a, b = session(dice, 6, noise, (effect, 0.0))
        ratio = stats.ratio(a, b)
        if stats.verdict(ratio, ratio.p, 6) != "undecided":
            continue
        numbers.append(stats.trials_to_decide(a, b))
        # Advice is never to add more than 50.
        n = min(numbers[-1], 56)
        ratio = stats.ratio(*session(dice, n, noise, (effect, 0.0)))
        decided += stats.verdict(ratio, ratio.p, n) in FOUND | {"same"}
    return median(numbers), decided / count


@dataclass(frozen=True)
class Disturbance:
    """What makes the steps of a run unequal, besides noise; a step takes 0.1 s, an epoch 60 s."""

    cold: float = 0.0
    """Seconds that a batch takes longer if its files are read for the first time."""
    reread: bool = True
    """Whether the sample of a later epoch reads the files of the first, as `imagenet` does."""
    heat: float = 0.0
    """Share by which steps get longer after the warm-up."""
    heating_seconds: float = 300.0
    pause: float = 0.0
    """Seconds without a step in every minute."""


@dataclass(frozen=True)
class Projections:
    """Results of many sampled trials with a disturbance."""

    ratio: float
    """Median of projected / full seconds."""
    wrong: float
    """Share of trials that are off by more than 3% and not marked."""
    marked: float
    """Share of trials that are marked `unsteady`."""
    covered: float
    """Share of trials whose range (projection and trend), widened by 3%, contains the full run."""


def scripted(mode: Mode, disturbance: Disturbance, sd: float, dice: Random, pause_at: float) -> dict[str, Any]:
    """Return the clock's summary of 10 epochs of 600 batches on an accelerator whose laps have this sd."""
    passed = 0.0
    clock = Clock(sampling_for(mode, accelerator=True), now=lambda: passed)
    files = FilesRead({0} if mode != "full" and disturbance.reread else ())
    cached: set[int] = set()
    pauses = 0
    for epoch in clock.epochs(10):
        order = Random(epoch).sample(range(6000), 6000)
        batches = [Spec("train", tuple(order[start : start + 10]), 1, 1, 0) for start in range(0, 6000, 10)]

        def loader(batches: Sequence[Spec] = batches) -> Iterator[Spec]:
            return files.again(batches)

        for spec in clock.steps(loader(), "train", samples=6000, count=lambda spec: len(spec.indices)):
            warm = len(cached.intersection(spec.indices)) / len(spec.indices)
            cached.update(spec.indices)
            heating = disturbance.heat * min(1.0, max(0.0, passed - 5.5) / disturbance.heating_seconds)
            passed += 0.1 * (1 + heating) * math.exp(dice.gauss(0, sd * math.sqrt(3))) + disturbance.cold * (1 - warm)
            if disturbance.pause and passed >= pause_at + 60 * pauses:
                pauses += 1
                passed += disturbance.pause
    return clock.summary()


def projections(count: int, disturbance: Disturbance, sd: float) -> Projections:
    """Compare sampled trials of a run with a disturbance with a full run with the same disturbance and no noise."""
    dice = Random(f"projections {disturbance} {sd}")
    ratios, wrong, marked, covered = [], 0, 0, 0
    full = scripted("full", disturbance, 0.0, dice, 30.0)["seconds"]
    for _ in range(count):
        sample = scripted("sampled", disturbance, sd, dice, dice.uniform(0, 60))
        ratio, later = sample["seconds"] / full, sample["later_ratio"]
        ratios.append(ratio)
        marked += sample["unsteady"]
        wrong += abs(ratio - 1) > 0.03 and not sample["unsteady"]
        covered += ratio * min(1, later) <= 1.03 and ratio * max(1, later) >= 0.97
    return Projections(median(ratios), wrong / count, marked / count, covered / count)


def table(heading: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    print("| " + " | ".join(heading) + " |")
    print("|" + " --- |" * len(heading))
    for line in lines:
        print("| " + " | ".join(map(str, line)) + " |")
    print(flush=True)


def percent(share: float, digits: int = 1) -> str:
    """Return a share as text: 0.01 as `1.0%`."""
    return f"{100 * share:.{digits}f}%"


def one_session_for_specimens(count: int, sd: float) -> float:
    """Return the share of false verdicts if two specimens are judged as two cases of one session."""
    dice = Random(f"pooled {sd}")
    found = 0
    for _ in range(count):
        a, b = session(dice, 6, Noise(0.01), (dice.gauss(0, sd), dice.gauss(0, sd)))
        ratio = stats.ratio(a, b)
        found += stats.verdict(ratio, ratio.p, 6) in FOUND
    return found / count


def print_equal(count: int) -> None:
    print("A/A in one session: the same case twice\n")
    lines = []
    for sd in SDS:
        for n in (6, 10, 20):
            even, rough = (one_session(count, n, Noise(sd, kind)) for kind in (False, True))
            alone, width = median_coverage(count, n, Noise(sd))
            lines.append(
                [
                    percent(sd), n, percent(even.found, 2), percent(rough.found, 2), percent(even.share("same")),
                    percent(rough.share("same")), percent(even.covered), percent(rough.covered),
                    f"±{percent(even.half_width)}", percent(alone), f"±{percent(width)}",
                ]
            )  # fmt: skip
    heading = ["sd", "n", "false", "false, rough", "`same`", "`same`, rough", "95% coverage", "95% coverage, rough"]
    table(
        [*heading, "mean width of ratio's interval", "median's 95% coverage", "mean width of median's interval"], lines
    )


def print_pooled(count: int) -> None:
    print("Four equal models, pooled, 6 rounds, sd 2%; shared: part of the variance that a round's models share\n")
    lines = []
    for shared in (0.0, 0.5, 0.95):
        equal, faster = pooled(count, shared), pooled(max(200, count // 4), shared, effect=math.log(1.1))
        lines.append(
            [
                percent(shared, 0), percent(equal.found, 2), percent(equal.covered), f"±{percent(equal.half_width)}",
                percent(faster.found, 0),
            ]
        )  # fmt: skip
    table(["shared", "false", "95% coverage", "its mean width", "a true 10% is found"], lines)


def print_one_name(count: int) -> None:
    print("Two equal cases with one session's name, the second some rounds after the first, 6 trials\n")
    lines = []
    for late in (0, 1, 2, 3, 6):
        for hours_sd in (0.02, 0.04, 0.06):
            many = one_name(count, late, hours_sd)
            lines.append([late, percent(hours_sd, 0), percent(many.found, 2), percent(many.covered)])
    table(["rounds later", "sd between half hours", "false", "95% coverage"], lines)


def print_unequal(count: int) -> None:
    print("Two equal cases, one with an sd of 1%, the other with 8%\n")
    numbers = ((6, 6), (10, 10), (20, 20), (6, 20), (20, 6))
    outcomes = [(n, unequal(count, n)) for n in numbers]
    lines = [[f"{n} and {m}", percent(o.found, 2), percent(o.covered)] for (n, m), o in outcomes]
    table(["trials", "false", "95% coverage"], lines)


def print_modes(count: int) -> None:
    print("A/A if every trial falls into one of two modes (sd 1% inside a mode)\n")
    modes = [one_session(count, n, Noise(0.01, modes=math.log(1.08))) for n in (6, 10, 20)]
    table(["n, 8% apart", "false", "95% coverage"], [
        [n, percent(m.found, 2), percent(m.covered)] for n, m in zip((6, 10, 20), modes, strict=True)
    ])  # fmt: skip


def print_power(count: int) -> None:
    few = max(200, count // 2)

    def found(sd: float, slowdown: float, numbers: Sequence[int]) -> list[str]:
        shares = [
            [one_session(few, n, Noise(sd, kind), math.log1p(slowdown)).found for kind in (True, False)]
            for n in numbers
        ]
        return [f"{percent(rough, 0)} ({percent(even, 0)})" for rough, even in shares]

    print("Power: share of comparisons in which a true 5% is found, in rough sessions (in brackets: others)\n")
    table(["sd", *(f"n = {n}" for n in NUMBERS)], [[percent(sd), *found(sd, 0.05, NUMBERS)] for sd in SDS])
    print("Power for larger slowdowns on hosts with much scatter\n")
    numbers = NUMBERS[:5]
    lines = [
        [percent(sd, 0), percent(slowdown, 0), *found(sd, slowdown, numbers)]
        for sd in RESTLESS_SDS
        for slowdown in SLOWDOWNS
    ]
    table(["sd", "slower by", *(f"n = {n}" for n in numbers)], lines)


def print_advised(count: int) -> None:
    print("If six trials leave a true 5% undecided: the advised number, and how often it decides\n")
    few = max(200, count // 2)
    lines = []
    for sd in SDS[1:]:
        number, decided = advice(few // 2, Noise(sd), math.log(1.05))
        lines.append([percent(sd), f"{number:.0f}", percent(decided, 0)])
    table(["sd", "trials a side advised (median)", "decided"], lines)


def print_specimen(count: int) -> None:
    print("One specimen each, equal cards, 6 trials of sd 1%\n")
    few = max(200, count // 2)
    lines = []
    for sd in (0.01, 0.02, 0.04, 0.06):
        one = between_specimens(count, sd)
        inside = one_session_for_specimens(count, sd)
        far = between_specimens(few, sd, effect=math.log(1.3))
        lines.append(
            [
                percent(sd), percent(one.found, 2), percent(one.share("one specimen")), percent(one.share("undecided")),
                percent(one.share("same")), percent(one.covered), percent(inside), percent(far.found, 0),
            ]
        )  # fmt: skip
    heading = ["sd between", "false", "`one specimen`", "`undecided`", "`same`", "95% coverage"]
    table([*heading, "false, judged as one session", "a true 30% is found"], lines)


def print_specimens(count: int) -> None:
    print("Several specimens a side, equal cards, and what a true 10% needs\n")
    few = max(200, count // 2)
    lines = []
    for sd in (0.01, 0.02, 0.04, 0.06):
        for k in (2, 3, 4, 5, 8):
            equal = between_specimens(count, sd, k)
            true = between_specimens(few, sd, k, effect=math.log(1.1))
            lines.append([percent(sd), k, percent(equal.found, 2), percent(equal.covered), percent(true.found, 0)])
    table(["sd between", "specimens a side", "false", "95% coverage", "a true 10% is found"], lines)


def print_hosts(count: int) -> None:
    print("Hosts of two kinds, half and half, equal cards\n")
    lines = []
    for gap in (0.04, 0.08, 0.15, 0.25):
        for k in (1, 2, 3, 4, 5, 6):
            hosts = between_specimens(count, 0.003, k, modes=math.log(1 + gap))
            few_specimens = hosts.share("one specimen", "few specimens")
            same, undecided = (percent(hosts.share(v)) for v in ("same", "undecided"))
            lines.append([percent(gap, 0), k, percent(hosts.found, 2), percent(few_specimens), undecided, same])
    heading = ["apart", "specimens a side", "false", "`one specimen`, `few specimens`", "`undecided`", "`same`"]
    table(heading, lines)


def print_families(count: int) -> None:
    print("Families of 20 ratios, 6 trials, Holm\n")
    lines = []
    for sd in SDS:
        smaller = max(20, count // 10)
        null = [family(smaller, Noise(sd, kind))[0] for kind in (False, True)]
        _, found = family(smaller, Noise(sd), effect=math.log(1.3))
        lines.append([percent(sd), *map(percent, null), percent(found, 0)])
    table(["sd", "families with a false verdict", "rough", "a true 30% is found"], lines)


def print_shapes(count: int) -> None:
    print("A/A in one session of other shapes: six, ten and twenty trials\n")
    shapes = {
        "heavy tails (t with 3 degrees)": {"shape": "t3"},
        "skewed (lognormal)": {"shape": "lognormal"},
        "ties (a grid of one sd)": {"shape": "ties"},
        "a host that drifts (AR(1), 0.9)": {"memory": 0.9},
    }
    lines = []
    for name, changes in shapes.items():
        for sd in SDS:
            outcomes = [one_session(count, n, Noise(sd, **changes)) for n in (6, 10, 20)]  # type: ignore[arg-type]
            alone = median_coverage(count, 10, Noise(sd, **changes))[0]  # type: ignore[arg-type]
            shares = [f"{percent(o.found, 2)}, {percent(o.covered)}" for o in outcomes]
            lines.append([name, percent(sd), *shares, percent(alone)])
    heading = ["shape", "sd", *(f"n = {n}: false, 95% coverage" for n in (6, 10, 20)), "median's 95% coverage, n = 10"]
    table(heading, lines)


def print_gate(count: int) -> None:
    print("--fail-on-slower 5%: calls that end with 1 although nothing is slower, by the number of ratios\n")
    few, sizes = max(200, count // 4), (1, 5, 20, 50)
    lines = []
    for sd in SDS:
        for trials in (6, 10):
            for kind in (False, True):
                alarms = [percent(gate(few, Noise(sd, kind), size, trials), 2) for size in sizes]
                lines.append(["one session" + ", rough" * kind, percent(sd), trials, *alarms])
    for days in (0.02, 0.04, 0.06):
        alarms = [percent(gate(few, Noise(0.01), size, 6, days=days), 2) for size in sizes]
        lines.append([f"two sessions, {percent(days, 0)} apart", "1.0%", 6, *alarms])
    table(["sides", "sd", "n", *(f"{size} ratios" for size in sizes)], lines)
    print("The same if all ratios are slower by exactly 5%, the limit\n")
    lines = []
    for sd in SDS:
        for trials in (6, 10):
            alarms = [
                percent(gate(few, Noise(sd), size, trials, slow=math.log(1.05), all_slow=True), 2) for size in sizes
            ]
            lines.append(["one session", percent(sd), trials, *alarms])
    table(["sides", "sd", "n", *(f"{size} ratios" for size in sizes)], lines)
    print("The same if one of the ratios is slower: how often it is found\n")
    lines = []
    for slow in (0.1, 0.2):
        for sd in SDS:
            for trials in (6, 10):
                found = [percent(gate(200, Noise(sd), size, trials, slow=math.log1p(slow)), 0) for size in sizes]
                lines.append([percent(slow, 0), "one session", percent(sd), trials, *found])
        found = [percent(gate(200, Noise(0.01), size, 6, days=0.02, slow=math.log1p(slow)), 0) for size in sizes]
        lines.append([percent(slow, 0), "two sessions, 2% apart", "1.0%", 6, *found])
    table(["slower by", "sides", "sd", "n", *(f"{size} ratios" for size in sizes)], lines)


def print_passes(count: int) -> None:
    print("--fail-on-slower 5%, one ratio, 6 trials: calls that end with 0, by the true slowdown\n")
    lines = []
    for days in (None, 0.0, 0.02, 0.04, 0.06):
        sides = "one session" if days is None else f"two sessions, {percent(days, 0)} apart"
        shares = [percent(gate_passes(count, Noise(0.01), 6, days=days, slow=math.log1p(slow))) for slow in (0, 0.05)]
        lines.append([sides, *shares])
    table(["sides", "none", "5%, exactly the limit"], lines)


def print_adaptive(count: int) -> None:
    print("--until 1%, at most 40 rounds, two equal cases; in brackets without the correction for optional stopping\n")
    few = max(200, count // 2)
    lines = []
    for sd in SDS:
        with_, without, rough = (
            until(few, Noise(sd)), until(few, Noise(sd), corrected=False), until(few, Noise(sd, rough=True)),
        )  # fmt: skip
        lines.append(
            [
                percent(sd), f"{with_.rounds:.0f} ({without.rounds:.0f})", percent(with_.reached, 0),
                f"{percent(with_.covered)} ({percent(without.covered)})",
                f"{percent(with_.median_covered)} ({percent(without.median_covered)})",
                percent(with_.false, 2), percent(rough.false, 2),
            ]
        )  # fmt: skip
    heading = ["sd", "rounds", "reached 1%", "ratio's 95% coverage", "median's 95% coverage", "false", "false, rough"]
    table(heading, lines)
    print("The same on a host that drifts: successive process effects correlate (AR(1)), sd 1%\n")
    drifting = [(memory, until(few, Noise(0.01, memory=memory))) for memory in (0.7, 0.9)]
    table(["correlation", "ratio's 95% coverage", "median's 95% coverage", "false"], [
        [memory, percent(run.covered), percent(run.median_covered), percent(run.false, 2)] for memory, run in drifting
    ])  # fmt: skip


def print_early(count: int) -> None:
    print("A run of up to six rounds that looks after three and four: equal cases, and true ratios\n")
    noises = {percent(sd): Noise(sd) for sd in (*SDS, *RESTLESS_SDS)}
    noises |= {f"two modes, {percent(gap, 0)} apart": Noise(0.003, modes=gap) for gap in (0.05, 0.1, 0.15, 0.2)}
    noises |= {"1%, rough": Noise(0.01, rough=True), "4.4%, t3": Noise(0.044, shape="t3")}
    lines = []
    for name, noise in noises.items():
        line = [name]
        for true in (1.0, 1.05, 1.3, 2.0):
            run = early(count if true == 1 else max(200, count // 4), noise, math.log(true))
            line.append(f"{percent(run.outcome.found)}, {percent(run.outcome.covered)}, {run.rounds:.1f}")
        lines.append(line)
    table(["sd", *(f"{true}: found, 95% coverage, rounds" for true in ("equal", "1.05", "1.3", "2"))], lines)


def print_peeking(count: int) -> None:
    print("Peeking: 40 rounds of two equal cases, judged once at the end, or after each round from the sixth on\n")
    few = max(200, count // 2)
    shares = [(sd, *peeking(few, Noise(sd))) for sd in (*SDS, 0.1)]
    table(["sd", "false, one look", "false, 35 looks"], [
        [percent(sd), percent(once, 2), percent(ever, 2)] for sd, once, ever in shares
    ])  # fmt: skip


def print_laps(count: int) -> None:
    print("Naive: a t test over 120 laps a side, equal cases; and Mann-Whitney over 6 trials with a point rule\n")
    few = max(200, count // 2)
    lines = []
    for sd in SDS:
        for processes in (1, 6):
            t = naive(few, processes, Noise(sd))
            shares = percent(t.false_p), percent(t.false_verdict), percent(t.covered)
            lines.append([percent(sd), f"t over laps, {processes} process{'es' * (processes > 1)}", *shares])
        lines.append(
            [percent(sd), "Mann-Whitney p < 5%, more than 2%", "", percent(point_rule(count, 6, Noise(sd))), ""]
        )
        ours = one_session(count, 6, Noise(sd))
        lines.append([percent(sd), "gpubench, 6 processes", "", percent(ours.found), percent(ours.covered)])
    table(["sd", "method", "p < 5%", "false verdicts", "95% coverage"], lines)


def print_projections(count: int) -> None:
    print("Sampled trials of 10 epochs of 60 s on an accelerator, against full runs with the same disturbance\n")
    disturbances = {
        "none": Disturbance(),
        "cold files, +20 ms a batch": Disturbance(cold=0.02),
        "cold files, +100 ms a batch": Disturbance(cold=0.1),
        "the same, and the sample reads new files": Disturbance(cold=0.1, reread=False),
        "heat, +10% in 300 s": Disturbance(heat=0.1),
        "heat, +10% in 30 s": Disturbance(heat=0.1, heating_seconds=30),
        "a pause of 3 s in every minute": Disturbance(pause=3.0),
    }
    lines = []
    for name, disturbance in disturbances.items():
        for sd in (0.0, 0.001, 0.003, 0.01, 0.03):
            many = projections(max(20, count // 10), disturbance, sd)
            shares = [percent(share, 0) for share in (many.wrong, many.marked, many.covered)]
            lines.append([name, percent(sd), f"{many.ratio:.3f}", *shares])
    table(
        ["disturbance", "sd of laps", "projected/full", "off by over 3%, unmarked", "marked", "interval holds"], lines
    )


SECTIONS = {
    "equal": print_equal,
    "pooled": print_pooled,
    "one-name": print_one_name,
    "unequal": print_unequal,
    "modes": print_modes,
    "power": print_power,
    "advised": print_advised,
    "specimen": print_specimen,
    "specimens": print_specimens,
    "hosts": print_hosts,
    "families": print_families,
    "shapes": print_shapes,
    "gate": print_gate,
    "passes": print_passes,
    "adaptive": print_adaptive,
    "early": print_early,
    "peeking": print_peeking,
    "laps": print_laps,
    "projections": print_projections,
}


def main() -> None:
    """Print everything, or the sections that are named."""
    arguments = argparse.ArgumentParser(description="Figures of docs/research/tested.md")
    arguments.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}; all by default")
    arguments.add_argument("--count", type=int, default=2000, help="comparisons per figure")
    wish = arguments.parse_args()
    print(f"{wish.count} comparisons per figure. sd: of processes; laps have half of it.\n")
    for name in wish.sections or SECTIONS:
        SECTIONS[name](wish.count)


if __name__ == "__main__":
    main()
