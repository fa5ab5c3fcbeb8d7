"""How often `gpubench accept` is wrong, by the published figures of 39 single-H100 hosts.

    python benchmarks/accept_simulation.py

`h100_hosts.csv` has what lambdal/deeplearning-benchmark@aa5addb6, pytorch/pytorch-train-throughput-v2-fp16.csv, says of
each of its hosts with one H100 SXM (half precision; images, sequences, tokens a second; hosts are numbered). Number 1
is unlike the others: 4% slower on ResNet-50 and 8% faster on BERT-base.

Each trial draws reference hosts and a new one without replacement; the cases of `accept` are their ResNet-50 and
BERT-base. Nobody published peaks and bandwidths of many hosts. These two checks take BERT-base of two other hosts, so
that they scatter independently, and more than what a GPU alone decides. Each figure has a run's own noise of 0.5%.
A false alarm: a host as published is returned. Kept: it is. Wrong: it would be with one figure or more 10% lower.
Found: a host of which some figures are 10% lower is returned.

`sd 4%`: made-up hosts instead, each figure lognormal and independent of the others, without noise besides.
`2 times`: distances from the median are twice the published ones, for kinds that scatter more. `less 1`: without number
1, which is an alarm itself once its distance is doubled.
"""

import argparse
import csv
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from gpubench.studies.acceptance.checks import LIKELY
from gpubench.studies.acceptance.limits import FOUND, LEAST_HOSTS, SLOW, Limit, found_by, limit_of

CHECKS = ("resnet50", "bert-base", "peak", "bandwidth")
RUN_SD = 0.005
KINDS: Mapping[str, Sequence[str]] = {
    "good": (),
    "all four": CHECKS,
    "not bandwidth": CHECKS[:3],
    "bandwidth alone": CHECKS[3:],
    "bert-base alone": CHECKS[1:2],
    "resnet50 alone": CHECKS[:1],
}
"""Which figures of a slow card are 10% lower."""
Host = Mapping[str, float]
Drawn = Callable[[int], Sequence[Host]]
"""Draws so many hosts."""


def hosts(times: float = 1.0) -> list[Host]:
    """The published figures, by workload, this many times as far from their median."""
    lines = list(csv.DictReader((Path(__file__).parent / "h100_hosts.csv").read_text().splitlines()))
    middle = {name: median(float(line[name]) for line in lines) for name in lines[0]}
    return [{name: middle[name] * (float(line[name]) / middle[name]) ** times for name in middle} for line in lines]


def with_checks(chosen: Sequence[Host], dice: random.Random) -> list[Host]:
    """The four figures of each host, with the noise of a run."""
    others = [dice.sample(chosen, len(chosen)) for _ in range(2)]
    return [
        {
            name: value * dice.lognormvariate(0, RUN_SD)
            for name, value in zip(
                CHECKS, (own["resnet50"], own["bert_base"], one["bert_base"], two["bert_base"]), strict=True
            )
        }
        for own, one, two in zip(chosen, *others, strict=True)
    ]


def published(found: Sequence[Host], dice: random.Random, count: int) -> list[Host]:
    """So many of these hosts, none twice."""
    return with_checks(dice.sample(found, count), dice)


def limits_by(references: Sequence[Host]) -> dict[str, Limit]:
    """By check the limit that these hosts give."""
    return {name: limit_of([host[name] for host in references], len(CHECKS)) for name in CHECKS}


def returned(new: Host, limits: Mapping[str, Limit], slow: Sequence[str] = ()) -> bool:
    """Whether a host, of which these figures are 10% lower, is returned."""
    return any(new[name] * (1 - SLOW if name in slow else 1.0) < limits[name].least for name in CHECKS)


def kept(new: Host, limits: Mapping[str, Limit], slow: Sequence[str] = ()) -> bool:
    """Whether a host, of which these figures are 10% lower, is kept: each is ok, and one slow in all would be found."""
    known = all(limit.found > LIKELY for limit in limits.values())
    return known and found_by(list(limits.values())) >= FOUND and not returned(new, limits, slow)


def simulated(count: int, drawn: Drawn, trials: int) -> dict[str, float]:
    """By kind of slow card the share that is returned, with so many reference hosts; `good`: of good cards."""
    counts: Counter[str] = Counter()
    for _ in range(trials):
        *references, new = drawn(count + 1)
        limits = limits_by(references)
        counts["kept"] += kept(new, limits)
        counts["wrong"] += max(kept(new, limits, slow) for slow in KINDS.values() if slow)
        counts.update(name for name, slow in KINDS.items() if returned(new, limits, slow))
    return {name: counts[name] / trials for name in ("kept", "wrong", *KINDS)}


def left_out(found: Sequence[Host], dice: random.Random) -> dict[str, int]:
    """Each host against all the others: by kind of slow card how many are returned."""
    made = with_checks(found, dice)
    limits = [limits_by([each for each in made if each is not new]) for new in made]
    return {
        name: sum(returned(new, own, slow) for new, own in zip(made, limits, strict=True))
        for name, slow in KINDS.items()
    }


def lognormal(spread: float, dice: random.Random, count: int) -> list[Host]:
    """So many made-up hosts, each figure with this spread and independent of the others."""
    return [{name: dice.lognormvariate(0, spread) for name in CHECKS} for _ in range(count)]


def main() -> None:
    """Print a line for each number of reference hosts, of hosts as published and of those that scatter more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4000)
    trials = parser.parse_args().trials
    dice = random.Random(1)
    print(f"{'world':>16} {'hosts':>5} {'kept':>6} {'wrong':>6} " + " ".join(f"{name:>16}" for name in KINDS))
    worlds: dict[str, tuple[Drawn, int]] = {}
    for world, own in (("published", hosts()), ("2 times, less 1", hosts(2)[1:]), ("4 times, less 1", hosts(4)[1:])):
        worlds[world] = (partial(published, own, dice), len(own) - 1)
    for spread in (0.02, 0.04, 0.06, 0.1):
        worlds[f"sd {spread:.0%}"] = (partial(lognormal, spread, dice), 38)
    for world, (drawn, most) in worlds.items():
        for count in (LEAST_HOSTS, 8, 12, most):
            shares = simulated(count, drawn, trials)
            good, wrong = shares.pop("kept"), shares.pop("wrong")
            ends = " ".join(f"{share:>16.2%}" for share in shares.values())
            print(f"{world:>16} {count:>5} {good:>6.0%} {wrong:>6.1%} {ends}", flush=True)
    print(f"left out one by one, of {len(hosts())}: {left_out(hosts(), dice)}")


if __name__ == "__main__":
    main()
