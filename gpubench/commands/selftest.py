"""`gpubench selftest`: tests on this device, in minutes, whether the tool measures and judges right.

It needs the measuring and the comparing side, which do not import each other; so it is part of neither.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import gpubench
from gpubench.analysis import stats
from gpubench.analysis.compare import Question, compare_rows
from gpubench.analysis.verdicts import Comparison
from gpubench.console import Screen
from gpubench.errors import UserError
from gpubench.hardware import environment as env
from gpubench.rows.read import load
from gpubench.runner import scratch
from gpubench.runner.cases import cases_of
from gpubench.runner.devices import choose_devices
from gpubench.runner.options import SAMPLED_REPEATS, Options
from gpubench.runner.process import describe, run_child
from gpubench.runner.recipes import recipes_of
from gpubench.runner.run import run
from gpubench.runner.signals import INTERRUPTED
from gpubench.suite import files
from gpubench.suite.trial import Trial, trial_to_json

SUITE = Path(__file__).with_name("selftest_suite.py")
NO_DATA = {SUITE.stem: ""}
PADDED = 1.25
"""What the padded case takes, by construction."""
OVERHEAD = 0.005
"""The most that the clock may add to a loop."""
PROJECTION = 0.1
"""The most that the median projection may be off a full run (a shared CPU's own windows differ by that much)."""
PARTS = (SAMPLED_REPEATS // 2, SAMPLED_REPEATS)
"""Rounds after which a full run is taken: what drifts, drifts under both."""
MORE_ROUNDS = ((11, 5), (20, 10))
"""(rounds, full runs) in all where those before leave the slowdown undecided or the projection off. One trial that
something else slowed down is enough for that (Mann-Whitney, 6 a side, one of them out of place: p = 0.065). Eleven bear
two of them (p = 0.010, which is 0.031 after Holm over two ratios and for more than one look); twenty are for machines
whose processes scatter by a tenth and more."""
CPU_FULL_SECONDS, ACCELERATOR_FULL_SECONDS = 12.0, 40.0
"""Length of a full run, about; a sampled trial of it measures half. An accelerator's takes five seconds of warm-up and
some more until it has settled, and has to end before the run does."""
SAMPLED = "sampled.csv"
"""Where the trials are that the verdicts rest on."""
CPU_SIZE, ACCELERATOR_SIZE = (256, 256), (2048, 1024)
"""(features, batch): a step of milliseconds, so that a lap is many steps."""
CPU_THREADS = {"threads": "1"}
"""It is the tool that is tested, by trials as even as can be had: threads wait for the slowest of them in every
operation, so that whatever disturbs one core disturbs all (figures in docs/bound.md)."""


@dataclass(frozen=True)
class Check:
    """One thing that was tried."""

    name: str
    passed: bool
    found: str

    @property
    def line(self) -> str:
        """As it is printed."""
        return f"{'ok  ' if self.passed else 'FAIL'}  {self.name}: {self.found}"


def run_selftest(wish: str = "auto") -> int:
    """Try the tool on the device that `wish` names and print the verdict; 0 if all is well, else 1."""
    facts = describe()
    chosen = choose_devices(wish, env.devices_of(facts))
    if len(chosen) != 1:
        raise UserError(f"--device {wish}: the selftest takes one device at a time; name it")
    device = chosen[0]
    console = Screen()
    console.print(
        f"selftest of gpubench {gpubench.__version__} on {device.card} ({device.device}):"
        f" {'~4 min' if device.kind == 'cpu' else 'some minutes'}, longer where trials scatter",
        markup=False,
    )
    checks = []
    with scratch.folder() as folder:
        for check in _checks(device, Path(folder)):  # each is printed when it is known: whoever stops it has those
            console.print(check.line, markup=False, soft_wrap=True)
            checks.append(check)
        beside = marked_shared(Path(folder) / SAMPLED)
    threads = ", 1 thread" if device.kind == "cpu" else ""
    where = f"{device.card}{threads}, torch {facts['torch']}, {datetime.now(UTC):%Y-%m-%d}"
    for line in verdict(checks, where, beside):
        console.print(line, markup=False, soft_wrap=True)
    return 0 if all(check.passed for check in checks) else 1


def marked_shared(path: Path) -> str:
    """How many trials in the file other programs disturbed; empty where none."""
    marks = load([path]).frame["marks"]
    shared = int(marks.str.contains("shared").sum())
    return f"{shared} of {len(marks)} trials ran beside other programs: run it again alone" if shared else ""


def verdict(checks: Sequence[Check], where: str, beside: str = "") -> list[str]:
    """What disturbed the checks, and one line to quote."""
    failed = ", ".join(check.name for check in checks if not check.passed)
    end = f"FAILED ({failed})" if failed else f"PASSED, {len(checks)} of {len(checks)} checks"
    return [*([f"note  {beside}"] if beside else []), f"gpubench {gpubench.__version__} selftest on {where}: {end}"]


def _checks(device: env.Device, folder: Path) -> Iterator[Check]:
    width, batch = CPU_SIZE if device.kind == "cpu" else ACCELERATOR_SIZE
    options = Options(
        suites=(str(SUITE),),
        precision="fp32",
        batch=str(batch),
        device=device.device,
        settings={"width": str(width), "steps": "10"} | (CPU_THREADS if device.kind == "cpu" else {}),
        peaks=False,
    )
    clock = _clock(options, device)
    yield check_timer(clock)
    yield check_overhead(clock)
    yield from _precisions(options, device, folder)
    full_seconds = CPU_FULL_SECONDS if device.kind == "cpu" else ACCELERATOR_FULL_SECONDS
    steps = max(40, round(full_seconds / clock["step_seconds"])) if clock else 1000
    options = replace(options, settings={**options.settings, "steps": str(steps)})
    sampled, full = folder / SAMPLED, folder / "full.csv"
    judged = replace(options, models=("a", "b", "padded"), out=sampled)
    for part, rounds in enumerate(PARTS, start=1):
        _run(replace(judged, repeats=rounds, soak=part == 1))
        _run(replace(options, models=("a",), mode="full", repeats=part, out=full, soak=False))
    for rounds, full_runs in MORE_ROUNDS:
        same, slower, projection = _judged(sampled, full)
        if not same.passed or (slower.passed and projection.passed):  # a false difference stays one
            break
        _run(replace(judged, repeats=rounds, soak=False))
        _run(replace(options, models=("a",), mode="full", repeats=full_runs, out=full, soak=False))
    yield from _judged(sampled, full)


def _judged(sampled: Path, full: Path) -> list[Check]:
    """What the trials so far say."""
    comparisons = _comparisons(sampled)
    return [
        check_same(comparisons.get("b")),
        check_slower(comparisons.get("padded")),
        check_projection(_seconds(sampled, ("a", "b")), _seconds(full, ("a",))),
    ]


def _run(options: Options) -> None:
    """Trials with their progress on stderr, and nothing else: the files are our own. Raises KeyboardInterrupt."""
    # A run that is stopped keeps what it has and returns; here it would be the next run's turn.
    if run(options, Screen(file=StringIO())).exit_code == INTERRUPTED:
        raise KeyboardInterrupt


def _comparisons(path: Path) -> dict[str, Comparison]:
    """Each model against `a`; none where no trial of `a` went well.

    That more rounds may follow is a chance to look again, so every look is judged at error rates divided by 1.5, as
    the rounds are that `run --until` adds.
    """
    loaded = load([path])
    looked_again = replace(loaded, frame=loaded.frame.assign(until=PADDED - 1))
    try:
        return {c.subject_name: c for c in compare_rows(looked_again, Question(by="model", baseline="a")).comparisons}
    except UserError:
        return {}


def _clock(options: Options, device: env.Device) -> dict[str, float]:
    """What the suite's `clock` model found; empty where it did not end well."""
    options = replace(options, models=("clock",), mode="full")
    case = cases_of(recipes_of(options, [files.find(str(SUITE))]), options, [device], NO_DATA, {})[0]
    outcome = run_child({"task": "trial", "trial": trial_to_json(Trial(case, 0, 0))}, time_limit_seconds=300)
    answer = (outcome.answer or {}).get("measurement", {})
    return dict(answer.get("quality", {})) if answer.get("status") == "ok" else {}


def _precisions(options: Options, device: env.Device, folder: Path) -> Iterator[Check]:
    """Every precision proves itself in a trial of its own, and a suite that ignores its precision is caught."""
    honest, liar = folder / "precisions.csv", folder / "liar.csv"
    _run(replace(options, models=("a",), precision="all", mode="quick", out=honest))
    _run(replace(options, models=("liar",), precision="mixed", mode="quick", out=liar))
    frame = load([honest]).frame
    bad = frame[~frame["status"].isin(["ok", "unsupported"])]
    proved = ", ".join(
        f"{row.precision} {row.precision_error:.0e}" for row in frame[frame["status"] == "ok"].itertuples()
    )
    wrong = "; ".join(f"{row.precision} {row.status}: {row.reason}" for row in bad.itertuples())
    yield Check("precisions", bad.empty and bool(proved), wrong or f"error against float64: {proved}")
    lied = load([liar]).frame
    caught = bool((lied["status"] == "failed").all() and lied["reason"].str.contains("asked for").all())
    unsupported = bool((lied["status"] == "unsupported").all())
    mixed = device.mixed
    found = f"{mixed} that computes in fp32 is refused" if caught else f"{mixed} that computes in fp32 passed"
    yield Check("label", caught or unsupported, f"{mixed} is unsupported here" if unsupported else found)


def check_timer(clock: Mapping[str, float]) -> Check:
    """The timer resolves a lap of a quarter of a second to a millionth part, or nearly."""
    if not clock:
        return Check("timer", False, "the trial that times the clock did not end well; run `gpubench doctor`")
    resolution = clock["resolution_seconds"]
    return Check("timer", resolution <= 1e-5, f"resolution {resolution * 1e9:.0f} ns")


def check_overhead(clock: Mapping[str, float]) -> Check:
    """The clock around a loop costs no more than OVERHEAD: by its own time per step, and against the bare loop."""
    if not clock:
        return Check("clock overhead", False, "not measured")
    share = clock["clock_seconds_per_step"] / clock["step_seconds"]
    pairs = [ratio for name, ratio in clock.items() if name.startswith("pair_")]
    low, high = stats.median_interval(pairs) or (min(pairs), max(pairs))
    found = (
        f"{clock['clock_seconds_per_step'] * 1e6:.1f} us a step, {share:.2%} of a step of"
        f" {clock['step_seconds'] * 1e3:.2g} ms; clocked / bare loop {stats.median(pairs):.4f} [{low:.4f}, {high:.4f}]"
    )
    return Check("clock overhead", share <= OVERHEAD and low <= 1 + OVERHEAD, found)


def check_same(comparison: Comparison | None) -> Check:
    """The same case twice must not be told apart."""
    if comparison is None:
        return Check("A/A", False, "no trial to compare")
    return Check("A/A", comparison.verdict in {"same", "unsure"}, _shown(comparison))


def check_slower(comparison: Comparison | None) -> Check:
    """A known slowdown must be found."""
    name = f"{PADDED - 1:.0%} slower"
    if comparison is None:
        return Check(name, False, "no trial to compare")
    return Check(name, comparison.verdict == "slower", _shown(comparison))


def _shown(comparison: Comparison) -> str:
    ratio = comparison.ratio
    interval = f" [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.low and ratio.high else ""
    trials = f"{comparison.subject.trials} and {comparison.other.trials} trials"
    return f"{comparison.verdict}, ratio {ratio.value:.3f}{interval}, {trials}"


def check_projection(projected: Sequence[float], full: Sequence[float]) -> Check:
    """Sampled trials foretell the full run's seconds within PROJECTION."""
    if not projected or not full:
        return Check("projection", False, "no trial to compare")
    ratio = stats.median(projected) / stats.median(full)
    found = (
        f"projected {stats.median(projected):.2f} s, full {stats.median(full):.2f} s, ratio {ratio:.3f}"
        f" (limit {PROJECTION:.0%}), {len(projected)} and {len(full)} trials"
    )
    return Check("projection", abs(ratio - 1) <= PROJECTION, found)


def _seconds(path: Path, models: Sequence[str]) -> list[float]:
    frame = load([path]).frame
    return [float(value) for value in frame[(frame["status"] == "ok") & frame["model"].isin(models)]["seconds"]]
