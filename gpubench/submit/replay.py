"""Replays a row's laps through the code that timed them: would it have warmed up, gone on and stopped like that?

A lap is made longer, a warm-up ends and a sample is enough by seconds, not by shares. So times that are all scaled by
one factor, or shuffled, tell of themselves.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from random import Random
from typing import Literal, get_args

from gpubench.submit.entry import LAP_SECONDS, Doubt, Entry, shown
from gpubench.submit.figures import Pass, split, stages, totals_of
from gpubench.suite.trial import Lap, Mode
from gpubench.training.clock.projection import stage_of
from gpubench.training.clock.sampling import Sampling, Stop, drift, sampling_for

SLACK = 10 * LAP_SECONDS
"""So near to a limit the rounding of laps decides."""
MODES: Mapping[str, Mode] = {"sampled": "sampled", "full": "full", "quick": "quick"}
NUDGES = 8
"""How often laps are tried with other digits beyond those that are written."""
MOST_LAPS = 20_000
"""So many of them in all, that a long row does not take minutes."""


def doubts(entry: Entry) -> Iterator[Doubt]:
    """What the clock would have done otherwise, whatever the digits were that laps were rounded by."""
    found, rng = [*_doubts(entry)], Random(0)
    for _ in range(min(NUDGES, MOST_LAPS // len(entry.laps)) if found and entry.laps else 0):
        nudged = [replace(lap, seconds=lap.seconds + rng.uniform(-0.5, 0.5) * LAP_SECONDS) for lap in entry.laps or ()]
        if not [*_doubts(replace(entry, laps=tuple(nudged)))]:
            return
    yield from found


def _doubts(entry: Entry) -> Iterator[Doubt]:
    mode = MODES.get(entry.text("mode"))
    if not entry.laps or not mode:
        return
    sampling = sampling_for(mode, accelerator=entry.accelerator)
    own, resident = split(entry)
    known = stages(resident) if resident else ()
    for each in own:
        if said := _steps(each, sampling) or _kinds(each, sampling, _first_epochs(entry, each, known)):
            yield entry.doubt("laps", f"{each[0].phase} of epoch {each[0].epoch}: {said}")
    if mode != "full" and not any(_ends(own, totals, sampling) for totals in totals_of(entry, own)):
        yield entry.doubt("laps", "which end before they are enough for a sample")
    if said := _resident(resident, sampling):
        yield entry.doubt("laps", f"on a resident batch: {said}")
    if not entry.text("resumed") and not any(_alike(entry.text("steady"), text) for text in _steady(entry, sampling)):
        yield entry.doubt("steady", f"its laps give {shown(_steady(entry, sampling)[0])}")


def _steps(laps: Pass, sampling: Sampling) -> str:
    """Why no clock takes so many steps a lap: one that was too short makes the next one twice as long, no other does.

    Of a long pass laps have a least number of steps, which depends on its length; what has once been enough stays so.
    """
    pairs = [(lap, following) for lap, following in pairwise(laps[:-1]) if lap.steps]
    near = [abs(lap.seconds - sampling.lap_seconds) <= SLACK for lap, _ in pairs]
    short = [lap.seconds < sampling.lap_seconds for lap, _ in pairs]
    kept = [
        lap.steps
        for (lap, following), brief in zip(pairs, short, strict=True)
        if lap.steps == following.steps and not brief
    ]
    enough = min(kept, default=0) if sampling.most_laps else 1
    for number, (lap, following) in enumerate(pairs):
        longer = following.steps / lap.steps
        expected = (2,) if short[number] else (1,) if enough and lap.steps >= enough else (1, 2)
        if longer not in ((1, 2) if near[number] else expected):
            return (
                f"lap {number + 1} took {lap.seconds:.3f} s, so that the next one would have {expected[0]} times its"
                f" steps, not {longer:.3g}"
            )
    return ""


Settles = Literal["timed", "last", "never", "seconds"]
SETTLES: tuple[Settles, ...] = get_args(Settles)
"""A card settles when its sensors say so, which no row tells: before timed laps, with the last, never, by seconds."""


@dataclass
class _Card:
    """Whether the card had settled after a lap."""

    laps: Sequence[Lap]
    settles: Settles
    after: int = 0

    def __call__(self) -> bool:
        rest = self.laps[self.after + 1 :]
        return rest[0].kind == "timed" if rest and self.settles == "timed" else not rest and self.settles == "last"


@dataclass(frozen=True)
class _Played:
    """What the clock makes of a pass."""

    kinds: Sequence[str]
    reason: str
    """What ended the warm-up."""
    enough: int
    """After how many laps it could have stopped; 0 where it could not."""


def _played(laps: Pass, sampling: Sampling, *, first_epoch: bool, settles: Settles) -> _Played:
    card = _Card(laps, settles)
    settled = card if sampling.least_warmup_seconds and settles != "seconds" else None
    stop = Stop(sampling, laps[0].phase, first_epoch=first_epoch, settled=settled)
    kinds, enough = [], 0
    for card.after, lap in enumerate(laps):
        kinds.append(stop.kind)
        stop.add(lap)
        enough = enough or (stop.reached and card.after + 1)
    if "timed" not in kinds:  # over before it was steady: all but the first count
        kinds = ["timed"] if len(laps) == 1 else ["warmup", *["timed"] * (len(laps) - 1)]
    return _Played(kinds, stop.reason, enough)


def _kinds(laps: Pass, sampling: Sampling, first_epochs: Sequence[bool]) -> str:
    """Why these are not the laps that would be warm-up, or why the phase would have ended before its end."""
    why = ""
    for first, settles in product(first_epochs, SETTLES):
        played = _played(laps, sampling, first_epoch=first, settles=settles)
        differs = [at for at, lap in enumerate(laps) if lap.kind != played.kinds[at]]
        if differs:
            why = why or f"lap {differs[0] + 1} would be `{played.kinds[differs[0]]}`"
        elif 0 < played.enough < len(laps):
            why = why or f"it had enough after {played.enough} laps, and has {len(laps)}"
        else:
            return ""
    return why


def _first_epochs(entry: Entry, laps: Pass, known: Sequence[int]) -> Sequence[bool]:
    """Whether the epoch is its stage's first, after which a phase has another warm-up; both where it may be."""
    epoch = max(0, laps[0].epoch)
    # A card is warm once it has trained. On a CPU nothing is left of an earlier phase.
    may_be_warm = entry.accelerator and laps[0].phase != "train"
    # Where no batch was resident nobody knows the stages, and before 0.2 it was stamped with any epoch. Those trained
    # before a kill have none.
    if may_be_warm or (epoch and (epoch in known or not known or entry.text("resumed"))):
        return (True, False)
    return (epoch in known or not known,)


def _ends(own: Sequence[Pass], totals: Sequence[int], sampling: Sampling) -> bool:
    """Whether each pass of a sampled training that left samples out had enough, if whole passes had so many samples."""
    train = [each for each in own if each[0].phase == "train"]
    for laps, total in zip(train, totals, strict=False):
        stop = Stop(sampling, "train", first_epoch=False)
        for lap in [laps[0], *(lap for lap in laps[1:] if lap.kind == "timed")]:  # that warm-up was over is in the laps
            stop.add(lap)
        steps, seen = sum(lap.steps for lap in laps), sum(lap.samples for lap in laps)
        if stop.kind == "timed" and not stop.reached and steps and total - seen >= seen / steps:
            return False
    return True


def _resident(laps: Sequence[Lap], sampling: Sampling) -> str:
    by_epoch: dict[int, list[Lap]] = defaultdict(list)
    for lap in laps:
        by_epoch[lap.epoch].append(lap)
    for own in by_epoch.values():
        spent = 0.0
        for count, lap in enumerate(own, start=1):
            if lap.seconds < sampling.lap_seconds - SLACK:
                return f"a lap of {lap.seconds:.3f} s is too short to count"
            if count - 1 >= sampling.resident_laps and spent >= sampling.resident_seconds + SLACK:
                return f"{count - 1} laps were enough, and there are {len(own)}"
            spent += lap.seconds
        if len(own) < sampling.resident_laps or spent < sampling.resident_seconds - SLACK:
            return f"{len(own)} laps of {spent:.2f} s together are not enough"
    return ""


def _steady(entry: Entry, sampling: Sampling) -> list[str]:
    """What the row may say of how its steady state was found."""
    own, resident = split(entry)
    train = [each for each in own if each[0].phase == "train"]
    if not train:
        return [""]
    timed = [lap for each in train for lap in each if lap.kind == "timed" and lap.samples]
    drifts = []
    for starts in (stages(resident), (0,)):
        by_stage = [[lap for lap in timed if stage_of(starts, lap.epoch) == start] for start in starts]
        drifts.append(next(filter(None, map(drift, by_stage)), ""))
    # With the last lap the warm-up may have been over; what the loader took to end was added to that lap afterwards.
    found = [entry.text("steady")] if re.search(rf"\b{len(train[0])} (warm-up )?laps", entry.text("steady")) else []
    # What ran after the last whole lap ends no warm-up.
    for laps, settles in product((train[0], train[0][:-1]), SETTLES):
        played = _played(laps, sampling, first_epoch=True, settles=settles) if laps else None
        reason = played.reason if played else ""
        found += [
            drifted or reason or f"short: over after {len(train[0])} laps, before it could be flat"
            for drifted in drifts
        ]
    return found


def _alike(said: str, follows: str) -> bool:
    """Whether two texts are the same but for the last digit of their numbers, which rounding decides."""
    apart = [re.split(r"(\d+(?:\.\d+)?)", text) for text in (said, follows)]
    if len(apart[0]) != len(apart[1]) or apart[0][::2] != apart[1][::2]:
        return False
    return all(
        abs(float(one) - float(other)) <= 1.01 * 10.0 ** -len(other.partition(".")[2])
        for one, other in zip(apart[0][1::2], apart[1][1::2], strict=True)
    )
