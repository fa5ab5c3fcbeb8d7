"""What rows say of one another: copies, trials that are there twice or overlap, cells that differ where none may."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from gpubench.rows.column import DIGITS
from gpubench.rows.row import ABOUT, NUMBERS
from gpubench.submit.entry import LAP_SECONDS, Doubt, Entry, shown
from gpubench.submit.figures import ROUNDED, split, took, validated
from gpubench.submit.limits import started_at
from gpubench.suite.precisions import multiplied_in

CASE = (
    "suite", "suite_digest", "model", "precision", "batch_policy", "batch_size", "processes", "nodes", "params", "data",
    "mode", "card", "device_hash", "device", "memory_limit_bytes", "torch", "gpubench", "session",
)  # fmt: skip
"""What the trials of one case in one run agree in."""
SETTING = [name for name, about in ABOUT.items() if about.source.startswith("case")]
"""The same, one by one."""
MAY_CHANGE = ("device", "commit", "load_average", "host_reference_seconds", "os", "cpu_governor", "container")
"""What may be another when a run goes on."""
MACHINE = [
    name
    for name, about in ABOUT.items()
    if about.source.startswith(("device", "environment")) and name not in MAY_CHANGE
]
"""What the rows of a device in one run agree in; its memory is the host's, of which each system takes a part."""
RECIPE = ("suite", "suite_digest", "model", "params", "data", "torch")
"""What rows agree in that do the same work on a sample."""
WORK = ("flops_per_sample", "bytes_per_sample", "ops_per_step", "odd_flops_share", "step_samples")
"""The same, of rows that compute it alike."""
LENGTH = ("run_samples", "epochs")
"""The same, where no training ends by what it has learnt."""
PEAKS = [name for name, about in ABOUT.items() if about.source.startswith("peak.")]
"""What is measured of a device in a precision, once a run."""
CLOCK_SECONDS = 1.2
"""A start is written to the second, and a clock may be set right meanwhile."""
TOO_ROUND = 1e-6
"""So seldom figures of a row end in that many zeros."""


def doubts(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Doubt]]:
    """What the rows of one or several files, passed together, say of each other."""
    for check in (copies, twice, overlaps, unlike, blanks, peaks, grains, bands, validation, round_figures):
        yield from check(entries)


Found = Iterator[tuple[Entry, Doubt]]


def _by(entries: Sequence[Entry], *columns: str) -> list[list[Entry]]:
    """The entries that agree in these columns, in groups."""
    groups: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
    for entry in entries:
        groups[tuple(map(str, (entry.row[name] for name in columns)))].append(entry)
    return list(groups.values())


def copies(entries: Sequence[Entry]) -> Found:
    """Rows whose laps are those of another row, or those times one factor."""
    groups: dict[tuple[object, ...], list[Entry]] = defaultdict(list)
    for entry in entries:
        laps = entry.laps or ()
        if len(laps) > 1:
            groups[tuple((lap.phase, lap.epoch, lap.kind, lap.steps, lap.samples) for lap in laps)].append(entry)
    for group in groups.values():
        seconds = np.array([[lap.seconds for lap in entry.laps or ()] for entry in group])
        shares = seconds / seconds.sum(axis=1, keepdims=True).clip(min=LAP_SECONDS)
        slack = 3 * (LAP_SECONDS / seconds.sum(axis=1).clip(min=LAP_SECONDS)).max()
        order = np.lexsort(shares.T[::-1])
        for before, at in pairwise(order):
            one, other = sorted((before, at))
            same = (seconds[one] == seconds[other]).all()
            if same or (seconds.shape[1] > 3 and (abs(shares[one] - shares[other]) <= slack).all()):
                yield (
                    group[other],
                    group[other].doubt(
                        "laps",
                        f"which is what {group[other].where(group[one])} has" + ("" if same else ", times one factor"),
                    ),
                )


def twice(entries: Sequence[Entry]) -> Found:
    """A trial of a case that is there twice."""
    for group in _by(entries, *CASE, "trial"):
        for entry in group[1:]:
            yield entry, entry.doubt("trial", f"{entry.where(group[0])} is the same trial of the same case")


def overlaps(entries: Sequence[Entry]) -> Found:
    """Trials of a run on one device that would have run at the same time, in one file."""
    groups: list[list[Entry]] = []
    for own in _by(entries, "session", "device", "device_hash"):
        files = dict.fromkeys(entry.place.path for entry in own)
        groups += [[entry for entry in own if entry.place.path == path] for path in files]
    for group in groups:
        timed = [(started, entry) for entry in group if (started := started_at(entry))]
        for (began, entry), (following, other) in pairwise(sorted(timed, key=lambda each: each[0])):
            least, later = took(entry), (following - began).total_seconds()
            if later + CLOCK_SECONDS < least * (1 - ROUNDED):
                follows = f"its times make {shown(least)} s, and {entry.where(other)} began {later:.0f} s later"
                yield entry, entry.doubt("started", follows)


def unlike(entries: Sequence[Entry]) -> Found:
    """Cells that differ where all rows of a run, or of a recipe, have the same."""
    alike = (*RECIPE, "precision", "batch_size", "processes", "device")
    whole = _in_one_go(entries)
    groups = (
        (SETTING, _by(entries, *CASE)),
        (MACHINE, _by(entries, "session", "device", "device_hash", "torch", "gpubench", "os")),
        (WORK, _by(whole, *alike)),
        (LENGTH, _by([entry for entry in entries if entry.text("mode") != "full"], *alike)),
    )
    for columns, own in groups:
        for group in own:
            for name in columns:
                yield from _odd_ones(group, name, [entry.row[name] for entry in group])
    for group in _by(whole, "suite", "suite_digest", "params", "model", "data"):
        yield from _odd_ones(group, "batch_size", [*map(_samples_a_unit, group)])


def _in_one_go(entries: Sequence[Entry]) -> list[Entry]:
    """Without those that were gone on with: the last process has no batch of stages before, and counts another step."""
    return [entry for entry in entries if not entry.text("resumed")]


def _samples_a_unit(entry: Entry) -> float:
    """Samples that a unit of the batch puts into a step; NaN where the laps do not say."""
    sizes = {lap.samples / lap.steps for lap in entry.laps or () if lap.kind == "resident" and lap.steps}
    return sizes.pop() / entry.number("batch_size") / entry.number("processes") if len(sizes) == 1 else math.nan


def _odd_ones(group: Sequence[Entry], name: str, values: Sequence[object]) -> Found:
    """The rows whose value is not what most of the group have; a number that is not there is looked at elsewhere."""
    known = [(entry, value) for entry, value in zip(group, values, strict=True) if value == value]
    counts = Counter(found for _, found in known)
    if len(counts) < 2:
        return
    usual = counts.most_common(1)[0][0]
    first = next(entry for entry, found in known if found == usual)
    for entry, found in known:
        if found != usual:
            yield entry, entry.doubt(name, f"{entry.where(first)}, which is alike, says {shown(first.row[name])}")


def blanks(entries: Sequence[Entry]) -> Found:
    """Numbers that are missing where other rows of the suite, measured alike, have them."""
    counted = [name for name in NUMBERS if ABOUT[name].source.startswith(("measurement", "case", "quality", "peak"))]
    alike = ("suite", "suite_digest", "model", "gpubench", "mode", "data", "precision", "processes", "studies")
    for group in _by(_in_one_go(entries), *alike):
        for compiled in (True, False):  # what is compiled nobody can count
            own = [entry for entry in group if ("compile=true" in entry.text("params")) is compiled]
            for name in counted:
                full = [entry for entry in own if entry.known(name)]
                for entry in own if full else ():
                    if not entry.known(name) and entry.has(name):
                        yield entry, entry.doubt(name, f"{entry.where(full[0])} was measured alike and has one")


def peaks(entries: Sequence[Entry]) -> Found:
    """Measured peaks that are the same figure for two precisions, or that change and come back."""
    known = [entry for entry in entries if entry.known("measured_peak_flops")]
    for group in _by(known, "device_hash", "measured_peak_flops"):
        for entry in group[1:]:
            if multiplied_in(entry.text("precision")) != multiplied_in(group[0].text("precision")):
                follows = f"{entry.where(group[0])} has the same for {group[0].text('precision')}"
                yield entry, entry.doubt("measured_peak_flops", follows)
    # They are measured together: where two are the same, so is the third.
    for name in PEAKS:
        others = [each for each in PEAKS if each != name]
        for group in _by([entry for entry in known if entry.known(*PEAKS)], "device_hash", "precision", *others):
            yield from _odd_ones(group, name, [entry.number(name) for entry in group])
    # Measured once a run, for all cases of a precision; again perhaps where the run was gone on with.
    for group in _by(known, "session", "device", "device_hash", "precision", "threads", "torch", "gpubench"):
        ordered = sorted(group, key=lambda entry: entry.text("started"))
        for name in PEAKS:
            for before, entry, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
                if before.number(name) == after.number(name) != entry.number(name):
                    follows = f"{entry.where(before)} and {entry.where(after)} have {shown(before.number(name))}"
                    yield entry, entry.doubt(name, follows)


def grains(entries: Sequence[Entry]) -> Found:
    """Figures that are no multiples of what those of most other rows of the suite are multiples of."""
    for name in ("accuracy", "top5", "peak_memory_bytes"):
        # A mean over several runs of a trial, say, is another fraction; memory is in pages all the same.
        alike = ("suite", "suite_digest", "device", *(() if name == "peak_memory_bytes" else ("params",)))
        for group in _by([entry for entry in entries if entry.known(name)], *alike):
            odd = [entry for entry in group if not _is_whole(entry, name)]
            if 2 * len(odd) < len(group):
                of = "whole pages" if name == "peak_memory_bytes" else "whole samples of the validation"
                yield from ((entry, entry.doubt(name, f"those of other rows are {of}")) for entry in odd)


PAGE_BYTES = 512
"""What allocators give is a multiple of this at least."""


def _is_whole(entry: Entry, name: str) -> bool:
    """Whether a figure is a whole number of pages, or of samples of the largest validation."""
    if name == "peak_memory_bytes":
        return entry.number(name) % PAGE_BYTES == 0
    own = [each for each in split(entry)[0] if each[0].phase != "train"]
    samples = max((sum(lap.samples for lap in each) for each in own), default=0)
    right = entry.number(name) * samples
    return abs(right - round(right)) <= ROUNDED * right


def bands(entries: Sequence[Entry]) -> Found:
    """Bands of a projection that are not those of their suite."""
    for group in _by(entries, "suite", "suite_digest", "gpubench"):
        for name in ("seconds_low", "seconds_high"):
            own = [entry for entry in group if entry.text("measured") == "projected"]
            known = [(entry.number(name) / entry.number("seconds"), entry) for entry in own if entry.known(name)]
            for entry in own if known else ():
                if not entry.known(name):
                    yield entry, entry.doubt(name, f"{entry.where(known[0][1])} is of the same suite and has one")
            usual = float(np.median([ratio for ratio, _ in known])) if known else 0.0
            for ratio, entry in known:
                if abs(ratio / usual - 1) > 2 * ROUNDED:
                    follows = f"{shown(usual * entry.number('seconds'))} is what its suite's band makes of the seconds"
                    yield entry, entry.doubt(name, follows)


def validation(entries: Sequence[Entry]) -> Found:
    """Validations whose seconds stand for another number of samples than those of other rows."""
    projected = [entry for entry in entries if entry.text("measured") == "projected" and entry.laps]
    for group in _by(projected, "suite", "suite_digest", "params", "data"):
        # A suite validates in each epoch, or once after them: the way in which more rows agree is the true one.
        readings = [_samples_validated(group, after=after) for after in (False, True)]
        yield from max(readings, key=lambda each: each[0])[1]


def _samples_validated(group: Sequence[Entry], *, after: bool) -> tuple[int, list[tuple[Entry, Doubt]]]:
    """How many rows have validations of the same number of samples, and the doubts of the others."""
    known = [(*each, entry) for entry in group if (each := validated(entry, after=after))[0] > 0]
    usual = round(float(np.median([samples for samples, _, _ in known]))) if known else 0
    odd = []
    for samples, slack, entry in known:
        if abs(samples - usual) > max(slack, 1e-9):
            follows = f"it stands for {shown(samples)} samples, and those of alike rows for {usual}"
            odd.append((entry, entry.doubt("valid_seconds", follows)))
    return len(known) - len(odd), odd


def round_figures(entries: Sequence[Entry]) -> Found:
    """Figures that end in more zeros than measured ones do: in a row, or in a column."""
    measured = [name for name in NUMBERS if ABOUT[name].source.startswith(("measurement", "record", "peak"))]
    columns = [name for name in measured if ABOUT[name].digits == DIGITS and name not in WORK]
    figures = {id(entry): [entry.number(name) for name in columns if entry.known(name)] for entry in entries}
    for entry in entries:
        if _seldom(figures[id(entry)]) < TOO_ROUND:
            yield entry, entry.doubt("seconds", "its figures, and others of the row, are rounder than measured ones")
        laps = {f"{lap.seconds:.6f}" for lap in entry.laps or ()}
        zeros = sum(len(each) - len(each.rstrip("0")) for each in laps)
        if laps and _zeros_or_more(zeros, len(laps)) < TOO_ROUND:
            yield entry, entry.doubt("laps", "which are rounder than measured ones")
    for group in _by(entries, "suite", "session"):
        for name in columns:
            values = [entry.number(name) for entry in group if entry.known(name)]
            if _seldom(values) < TOO_ROUND:
                yield group[0], group[0].doubt(name, "the figures of this column are rounder than measured ones")


def _seldom(figures: Sequence[float]) -> float:
    """How often measured figures would end in so many zeros together."""
    digits = [f"{abs(each):.{DIGITS - 1}e}".partition("e")[0] for each in {*figures} if each]
    return _zeros_or_more(sum(len(each) - len(each.rstrip("0")) for each in digits), len(digits))


def _zeros_or_more(zeros: int, numbers: int) -> float:
    """The chance of so many last zeros in so many numbers, each digit being zero one time in ten."""
    if not numbers:
        return 1.0
    fewer = 0.0
    for n in range(zeros):
        ways = math.lgamma(n + numbers) - math.lgamma(n + 1) - math.lgamma(numbers)
        fewer += math.exp(ways + n * math.log(0.1) + numbers * math.log(0.9))
    return 1.0 - fewer
