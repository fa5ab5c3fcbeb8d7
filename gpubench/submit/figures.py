"""Recomputes the figures of a row from its laps, with the code that made them, and holds them against each other."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from gpubench.rows.column import DIGITS
from gpubench.submit.entry import LAP_SECONDS, Doubt, Entry, shown
from gpubench.suite.trial import Lap
from gpubench.training.clock.projection import Epoch, Phase, summarise

ROUNDED = 10.0 ** (1 - DIGITS)
"""By how much of itself a figure may be off that was rounded to its digits: half of a unit of the last, twice."""
MOST_STAGES = 64
"""No training has more."""
PASSES = 8
"""Of so many passes any may be the first that counts; of more, only the first of the training."""
Pass = tuple[Lap, ...]
"""The laps of one pass over a loader."""

FROM_LAPS = (
    "samples", "samples_per_second", "train_seconds", "valid_seconds", "loader_wait", "data_stall",
    "resident_samples_per_second", "run_samples", "epochs",
)  # fmt: skip
"""Columns that follow from the laps, or from them and how many samples the whole run has."""


def doubts(entry: Entry) -> Iterator[Doubt]:
    """What does not agree with the laps, or with another figure of the row."""
    yield from _of_times(entry)
    if not entry.laps:
        yield entry.doubt("laps", "and no figure of the row can be recomputed from that")
        return
    fewest: list[Doubt] | None = None
    for reading in readings(entry):
        found = list(_against(entry, reading))
        fewest = found if fewest is None or len(found) < len(fewest) else fewest
        if not fewest:
            break
    yield from fewest or ()
    yield from _of_rates(entry)
    yield from _of_step(entry)
    yield from _of_energy(entry, [lap for lap in entry.laps if lap.phase == "train" and lap.kind == "timed"])


def passes(laps: Sequence[Lap]) -> list[Pass]:
    """Laps of whole passes: those that follow each other in one phase of one epoch, until it warms up anew.

    A pass that has several laps begins with warm-up.
    """
    found: list[list[Lap]] = []
    for lap in laps:
        first, last = (found[-1][0], found[-1][-1]) if found else (None, None)
        same = first and last and (last.phase, last.epoch) == (lap.phase, lap.epoch) and first.kind == "warmup"
        if same and last and not (lap.kind == "warmup" and last.kind == "timed"):
            found[-1].append(lap)
        else:
            found.append([lap])
    return [tuple(each) for each in found]


def split(entry: Entry) -> tuple[list[Pass], list[Lap]]:
    """The passes of a row's training, and its laps on a resident batch."""
    laps = entry.laps or ()
    return passes([lap for lap in laps if lap.kind != "resident"]), [lap for lap in laps if lap.kind == "resident"]


def stages(resident: Sequence[Lap]) -> tuple[int, ...]:
    """The epochs that stages begin with: a batch of each is the resident one."""
    found = sorted({0, *(max(0, lap.epoch) for lap in resident)})
    return tuple(found if len(found) <= MOST_STAGES else (0,))


Reading = Mapping[str, tuple[float, float]]
"""By column the least and the most that it can be."""


def readings(entry: Entry) -> Iterator[Reading]:
    """What the clock would say of these laps, by each way in which they may have come about.

    Laps that do not count stand first, and nothing in the row says how many they are; nor which passes of a sampled
    training were stopped, which left out a last, smaller batch, and which came after the epochs.
    """
    own, resident = split(entry)
    sampled = entry.text("mode") != "full" and entry.text("measured") == "projected"
    # Before 0.2 the laps on a resident batch were stamped with the epoch before them, whatever its stage.
    starts = dict.fromkeys([stages(resident), (0,)])
    first = next((at for at, each in enumerate(own) if each[0].phase == "train" and each[0].epoch >= 0), len(own))
    for uncounted in dict.fromkeys([*range(min(first + 1, PASSES)), first]):
        counted = own[uncounted:]
        cuts, afters = ((True, False), _afters(counted)) if sampled else ((False,), (0,))
        for start, cut, after, totals in product(starts, cuts, afters, totals_of(entry, counted)):
            yield _reading(entry, counted, resident, _Way(start, cut, after, totals))


@dataclass(frozen=True)
class _Way:
    """How laps may have come about."""

    starts: tuple[int, ...]
    """Epochs that stages begin with."""
    cut: bool
    """Whether any pass was stopped."""
    after: int
    """How many passes came after the epochs."""
    totals: Sequence[int]
    """Samples of each whole pass of the training; empty where nobody can tell."""


def _afters(counted: Sequence[Pass]) -> Sequence[int]:
    """How many passes may have come after the epochs: they bear the last one's number, and no other epoch has them."""
    if not counted:
        return (0,)
    ran = Counter(each[0].epoch for each in counted if each[0].epoch >= 0)
    own = ran.pop(counted[-1][0].epoch, 1)
    return range(min(own - min(ran.values(), default=1), PASSES) + 1) or (0,)


def totals_of(entry: Entry, counted: Sequence[Pass]) -> list[list[int]]:
    """How many samples whole passes of the training may have; the last one stands for those that did not run."""
    seen = [sum(lap.samples for lap in each) for each in counted if each[0].phase == "train"]
    epochs = [each[0].epoch for each in counted if each[0].phase == "train"]
    if (
        entry.text("measured") != "projected"
        or len({*epochs}) != len(epochs)
        or not entry.known("run_samples", "epochs")
    ):
        return [[]]
    weights = [1] * len(seen)
    if weights:
        weights[-1] += max(0, int(entry.number("epochs")) - len(seen))
    every = product((False, True), repeat=len(seen))
    few = [(False,) * len(seen), (True,) + (False,) * (len(seen) - 1), (True,) * len(seen)]
    found = []
    for whole in every if len(seen) <= 4 else few:
        rest = entry.number("run_samples") - sum(
            n * w for n, w, is_whole in zip(seen, weights, whole, strict=True) if is_whole
        )
        missing = sum(w for w, is_whole in zip(weights, whole, strict=True) if not is_whole)
        total = rest / missing if missing else 0.0
        if (missing and total == int(total)) or (not missing and not rest):
            found.append([n if is_whole else int(total) for n, is_whole in zip(seen, whole, strict=True)])
    return [each for each in found if all(total >= n for total, n in zip(each, seen, strict=True))] or [[]]


def _reading(entry: Entry, counted: Sequence[Pass], resident: Sequence[Lap], way: _Way) -> Reading:
    projected = entry.text("measured") == "projected"
    totals, phases = [*way.totals], []
    for own in counted:
        seen = sum(lap.samples for lap in own)
        total = totals.pop(0) if totals and own[0].phase == "train" else seen
        phases.append(Phase(own[0].phase, own[0].epoch, own, total, way.cut))
    by_epoch: dict[int, list[Phase]] = defaultdict(list)
    inside, after = phases[: len(phases) - way.after], phases[len(phases) - way.after :]
    for phase in inside:
        by_epoch[phase.epoch].append(phase)
    epochs = [
        Epoch(index, sum(each.seconds for each in within), tuple(within))
        for index, within in by_epoch.items()
        if index >= 0
    ]
    once = [*(phase for phase in inside if phase.epoch < 0), *after]
    planned = int(entry.number("epochs")) if epochs and entry.known("epochs") else 0
    summary = summarise(epochs, once, resident, planned, way.starts)
    found = {name: (float(summary[name]),) * 2 for name in FROM_LAPS if summary.get(name) is not None}
    if projected:
        for name in ("run_samples", "epochs"):
            found.pop(name, None)
        found["valid_seconds"] = (found["valid_seconds"][0], math.inf)
        if not way.totals or len(way.starts) > 1:
            found["train_seconds"] = (sum(phase.seconds for phase in phases if phase.name == "train"), math.inf)
    else:
        found["epochs"] = (len(epochs) or 1,) * 2
    # Stages count with samples that nobody knows; those trained before a kill leave no trace of where they began.
    if entry.text("resumed") or (projected and len(way.starts) > 1):
        timed = [lap for phase in phases for lap in phase.laps if phase.name == "train" and lap.kind == "timed"]
        found = {name: each for name, each in found.items() if name not in ("loader_wait", "data_stall")}
        bounds = {"samples_per_second": rates(timed), "resident_samples_per_second": rates(resident)}
        found |= {name: each for name, each in bounds.items() if name in found}
    return found


def rates(laps: Sequence[Lap]) -> tuple[float, float]:
    """The rates of the slowest and of the fastest epoch."""
    found = []
    by_epoch: dict[int, list[Lap]] = defaultdict(list)
    for lap in laps:
        by_epoch[lap.epoch].append(lap)
    for own in by_epoch.values():
        found.append(sum(lap.samples for lap in own) / max(LAP_SECONDS, sum(lap.seconds for lap in own)))
    return min(found, default=0.0), max(found, default=math.inf)


def took(entry: Entry) -> float:
    """Seconds that the trial took at least, by its own figures: its laps, what lay between them, and its start.

    Of a run that was gone on with only what the last process surely did, whose start the row has.
    """
    resumed = entry.text("resumed")
    laps = [lap for lap in entry.laps or () if lap.kind == "resident" or not resumed]
    found = sum(lap.seconds for lap in laps)
    found += sum(entry.number(name) for name in ("startup_seconds", "setup_seconds") if entry.known(name))
    ran = len({lap.epoch for lap in laps if lap.epoch >= 0 and lap.kind != "resident"})
    if ran and entry.known("seconds", "train_seconds", "valid_seconds", "epochs"):
        others = sum(lap.seconds for lap in laps if lap.phase not in ("train", "valid"))
        between = entry.number("seconds") - entry.number("train_seconds") - entry.number("valid_seconds")
        found += max(0.0, between * ran / max(ran, entry.number("epochs")) - others)
    return found


def validated(entry: Entry, *, after: bool) -> tuple[float, float]:
    """Samples of a validation that its projected seconds stand for, and by how many that may be off; NaN if unknown.

    With `after` as if it had come once, after the epochs, and not in each.
    """
    own, _ = split(entry)
    valid = [each for each in own if each[0].phase == "valid" and each[0].epoch >= 0]
    timed = sum(lap.seconds for each in valid for lap in each if lap.kind == "timed")
    if not timed or len({each[0].epoch for each in valid}) != len(valid) or not entry.known("epochs", "valid_seconds"):
        return math.nan, math.nan
    if after and len(valid) > max(_afters(own)):
        return math.nan, math.nan

    def seconds(samples: int) -> float:
        phases = [Phase("valid", each[0].epoch, each, samples, cut=True) for each in valid]
        epochs = [] if after else [Epoch(phase.epoch, phase.seconds, (phase,)) for phase in phases]
        planned = int(entry.number("epochs"))
        return float(summarise(epochs, phases if after else (), (), planned)["valid_seconds"])

    most = max(sum(lap.samples for lap in each) for each in valid)
    least, further = seconds(most), seconds(2 * most)
    samples = most + (entry.number("valid_seconds") - least) / (further - least) * most
    laps = sum(map(len, valid))
    return samples, abs(samples) * (4 * ROUNDED + 2 * laps * LAP_SECONDS / timed)


def _against(entry: Entry, reading: Reading) -> Iterator[Doubt]:
    """Where the row says something else than the laps."""
    laps = entry.laps or ()
    timed = sum(lap.seconds for lap in laps if lap.kind == "timed" and lap.phase == "train")
    # What the rounding of laps can make of a share of them, or of a rate.
    share = len(laps) * LAP_SECONDS / timed if timed else 0.0
    for name, (least, most) in reading.items():
        said = entry.number(name)
        if not entry.has(name):
            continue
        slack = ROUNDED * abs(least)
        if name.endswith("_seconds"):
            slack += len(laps) * LAP_SECONDS * max(1.0, least / timed if timed else 1.0)
        elif name not in {"samples", "run_samples", "epochs"}:
            slack += share * max(1.0, abs(least)) * 2
        if not least - slack <= said <= most + slack:
            follows = shown(least) if least == most else f"{shown(least)} or more"
            yield entry.doubt(name, f"its laps give {follows}")


def _of_times(entry: Entry) -> Iterator[Doubt]:
    """Where the seconds of a row contradict each other."""
    seconds, train, valid = map(entry.number, ("seconds", "train_seconds", "valid_seconds"))
    slack = 2 * ROUNDED * max(train, valid)
    if train + valid > seconds + slack:
        yield entry.doubt("seconds", f"training and validation alone take {shown(train + valid)} s")
    low, high = entry.number("seconds_low"), entry.number("seconds_high")
    if entry.text("measured") not in {"measured", "projected"}:
        yield entry.doubt("measured", "and has to be `measured` or `projected`")
    if math.isnan(low) != math.isnan(high):
        yield entry.doubt("seconds_low", "and a band has two ends")
    elif entry.text("measured") == "measured" and not math.isnan(low):
        yield entry.doubt("seconds_low", "and what was measured has no band")
    elif low > seconds or high < seconds:
        yield entry.doubt("seconds", f"its band is {shown(low)} to {shown(high)} s")


def _of_rates(entry: Entry) -> Iterator[Doubt]:
    """Where the stall is not what the two rates make of it."""
    names = ("data_stall", "samples_per_second", "resident_samples_per_second")
    stall, rate, resident = map(entry.number, names)
    if entry.known(*names) and resident > 0 and abs(1 - rate / resident - stall) > 3 * ROUNDED * (1 + rate / resident):
        yield entry.doubt("data_stall", f"its rates give {shown(1 - rate / resident)}")


def _of_step(entry: Entry) -> Iterator[Doubt]:
    """Where the step that was counted is not one on the first resident batch."""
    for lap in split(entry)[1][:1]:
        follows = lap.samples / max(1, lap.steps) / entry.number("processes")
        if entry.known("step_samples", "processes") and entry.number("step_samples") != follows:
            yield entry.doubt("step_samples", f"a resident step of its laps has {shown(follows)} a process")


def _of_energy(entry: Entry, timed: Sequence[Lap]) -> Iterator[Doubt]:
    """Where energy, power and the timed laps contradict each other."""
    joules = entry.number("energy_joules")
    if entry.text("resumed"):  # laps of an earlier process are in no energy
        return
    seconds, samples = sum(lap.seconds for lap in timed), sum(lap.samples for lap in timed)
    for name, divisor in (("mean_power_watts", seconds), ("joules_per_sample", samples)):
        said = entry.number(name)
        if not divisor or (math.isnan(said) and math.isnan(joules)):
            continue
        follows = joules / divisor
        if not abs(said - follows) <= (2 * ROUNDED + len(timed) * LAP_SECONDS / divisor) * abs(follows):
            yield entry.doubt(name, f"energy and laps give {shown(follows)}")
