"""What is said before a run begins: how much there is to do, how long that takes, on which data, what cannot run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from gpubench.data import datasets
from gpubench.runner.options import Options
from gpubench.suite.trial import Case, Trial

TRIAL_SECONDS = {"sampled": (20.0, 33.0), "quick": (12.0, 20.0)}
"""What a trial takes on a CPU and on an accelerator, about (benchmarks/card_time.py): start, warm-up, timed laps."""
SEARCH_SECONDS = {"sampled": 60.0, "quick": 15.0}
"""The same of a search for a batch."""
WARMING_SECONDS = 60.0
"""An accelerator's soak and peaks."""


def forecast(left: Sequence[Trial], searches: int, options: Options, now: datetime) -> list[str]:
    """Lines on the trials that are left; `searches` is how many batches have to be found first.

    Before the first trial nobody knows how long a step takes here. So a sampled run gets the usual time, and a full
    one only what limits it.
    """
    running = [trial.case for trial in left if not trial.case.refusal]
    limit = options.limit_seconds(options.mode)
    ended = f"; one that takes {span(limit)} is ended (--time-limit)" if limit else ""
    what = "whole run" if options.mode == "full" else "trial"
    parts = [f"{len(running)} {what}{'s' * (len(running) != 1)}{' or more' * bool(options.until)}"]
    parts[0] += f" and {searches} batch search{'es' * (searches > 1)}" if searches else ""
    lines = []
    if options.mode == "full":
        note = "how long a whole run takes is known after the first"
    else:
        note = "that is the usual time of a trial, and one with slow steps takes longer"
        least = usual_seconds(running, searches, options)
        # A round that would end after the budget is not begun.
        most = max(least, (options.budget_seconds or 0.0) if options.until else 0.0)
        last = now + timedelta(seconds=most)
        parts[0] += f", about {span(least)}" + (f" to {span(most)}" if most > least else "")
        parts.append(f"ends about {moment(last, now)}")
    parts[1:1] = [f"data: {data}" for data in [data_of(running)] if data]
    if running:
        lines = ["; ".join(parts), note + ended]
    for reason, count in Counter(trial.case.refusal for trial in left if trial.case.refusal).items():
        lines.append(f"{count} case{'s' * (count > 1)} cannot run: {reason}")
    return lines


def usual_seconds(cases: Sequence[Case], searches: int, options: Options) -> float:
    """What so many trials usually take, with what comes before them."""
    on_card = [case.device != "cpu" for case in cases]
    seconds = sum(TRIAL_SECONDS[options.mode][card] for card in on_card)
    return seconds + searches * SEARCH_SECONDS[options.mode] + any(on_card) * WARMING_SECONDS


def data_of(cases: Iterable[Case]) -> str:
    """Names of what the cases read, each with whether it is the real thing; empty where they read nothing."""
    known = {*datasets.DATASETS, *datasets.TREES}
    words = []
    for name in dict.fromkeys(case.data for case in cases if case.data):
        kind = "made up" if name == "synthetic" else "real" if known.issuperset(name.split("+")) else "your own"
        words.append(f"{name} ({kind})")
    return ", ".join(words)


def span(seconds: float) -> str:
    """A length of time in minutes: `14 min`, `3 h 20 min`; short ones in seconds."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(max(1, round(seconds / 60)), 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes))


def moment(when: datetime, now: datetime) -> str:
    """A time of day, with the day where it is not today."""
    return f"{when:%H:%M}" + f" on {when.day} {when:%B}" * (when.date() != now.date())
