"""`gpubench selftest`: tests times, precisions and verdicts on this device, with the suite worker/selftest_suite.py."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import gpubench
from gpubench.errors import UserError
from gpubench.printed import say
from gpubench.runner.options import SAMPLED_REPEATS, Options

if TYPE_CHECKING:
    from gpubench.analysis.verdicts import Comparison
    from gpubench.hardware.environment import Device

EXAMPLES = "Example: `gpubench selftest` or `gpubench selftest --device cuda:1`"
SUITE = Path(__file__).parents[1] / "worker" / "selftest_suite.py"
PADDED = 1.25
"""Time of the model `padded` relative to `a`, by construction."""
OVERHEAD = 0.005
"""Largest share of a loop's time that the clock may add."""
PROJECTION = 0.1
"""Largest allowed error of the median projection; on a shared CPU, parts of one run differ by as much."""
ROUNDS = ((SAMPLED_REPEATS // 2, 1), (SAMPLED_REPEATS, 2), (11, 5), (20, 10))
"""Total (rounds, full runs) after each part. Sampled and full trials alternate, so that drift affects both.

They are judged after 6 rounds. More follow if the slowdown is undecided or the projection wrong: one slow trial of 6
is enough for that (Mann-Whitney, p = 0.065). 11 rounds still decide with two slow trials (p = 0.010, or 0.031 corrected
for two ratios and for several looks). 20 are for machines whose trials differ by 10% and more.
"""
CPU_FULL_SECONDS, ACCELERATOR_FULL_SECONDS = 12.0, 40.0
"""Approximate seconds of a full run. A sampled trial trains for up to about 7 s on a CPU and 32 s on an accelerator,
mostly to warm up."""
SAMPLED = "sampled.csv"
"""File of the trials that the verdicts use."""
CPU_SIZE, ACCELERATOR_SIZE = (256, 256), (2048, 1024)
"""(features, batch) with which a step takes milliseconds, so that a lap has many steps."""
CPU_THREADS = {"threads": "1"}
"""With more, each operation waits for the slowest core, and trials differ more (docs/research/tested.md)."""


@dataclass(frozen=True)
class SelftestCheck:
    """The result of one test."""

    name: str
    passed: bool
    detail: str

    @property
    def line(self) -> str:
        """The line that is printed."""
        return f"{'ok  ' if self.passed else 'FAIL'}  {self.name}: {self.detail}"


def selftest(
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, mps, xpu or cuda:1.")] = "auto",
) -> int:
    """Test whether gpubench's times and precisions are right on this device. Takes minutes. Exit code 1: failed."""
    from gpubench.hardware.environment import devices_of
    from gpubench.runner.devices import choose_devices
    from gpubench.runner.process import describe, temporary_folder

    facts = describe()
    tested, *others = choose_devices(device, devices_of(facts))
    if others:
        raise UserError(f"--device {device}: give one device")
    duration = "~4 min" if tested.kind == "cpu" else "some minutes"
    say(f"selftest of gpubench {gpubench.__version__} on {tested.card} ({tested.device}): {duration} or more")
    checks = []
    with temporary_folder() as folder:
        for check in _checks(tested, Path(folder)):
            say(check.line)
            checks.append(check)
        shared = marked_shared(Path(folder) / SAMPLED)
    threads = ", 1 thread" if tested.kind == "cpu" else ""
    setup = f"{tested.card}{threads}, torch {facts['torch']}, {datetime.now(UTC):%Y-%m-%d}"
    say(*verdict(checks, setup, shared))
    return 0 if all(check.passed for check in checks) else 1


def marked_shared(path: Path) -> str:
    """Return a note on how many trials of the file ran while other programs used the device; empty if none."""
    from gpubench.rows.read import load

    marks = load([path]).frame["marks"]
    shared = int(marks.str.contains("shared").sum())
    return f"{shared} of {len(marks)} trials shared the device: close other programs, test again" if shared else ""


def verdict(checks: Sequence[SelftestCheck], setup: str, note: str = "") -> list[str]:
    """Return the note, if any, and the result in one line."""
    failed = ", ".join(check.name for check in checks if not check.passed)
    end = f"FAILED ({failed})" if failed else f"PASSED, {len(checks)} of {len(checks)} checks"
    return [*([f"note  {note}"] if note else []), f"gpubench {gpubench.__version__} selftest on {setup}: {end}"]


def _checks(device: "Device", folder: Path) -> Iterator[SelftestCheck]:
    """Run the trials in the folder and yield each check as soon as its result is known."""
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
    for rounds, full_runs in ROUNDS:
        _run(replace(judged, repeats=rounds, soak=rounds == ROUNDS[0][0]))
        _run(replace(options, models=("a",), mode="full", repeats=full_runs, out=full, soak=False))
        if rounds < SAMPLED_REPEATS:
            continue
        comparisons = _comparisons(sampled)
        same = check_verdict("A/A", comparisons.get("b"), {"same", "undecided"})
        slower = check_verdict(f"{PADDED - 1:.0%} slower", comparisons.get("padded"), {"slower"})
        projection = check_projection(_seconds(sampled, ("a", "b")), _seconds(full, ("a",)))
        if not same.passed or (slower.passed and projection.passed):  # more trials cannot repair a false difference
            break
    yield from (same, slower, projection)


def _run(options: Options) -> None:
    """Run trials with only their progress on stderr. Raises KeyboardInterrupt if the run was stopped."""
    from gpubench.runner.run import run
    from gpubench.runner.signals import INTERRUPTED

    if run(options, say=lambda line: None).exit_code == INTERRUPTED:
        raise KeyboardInterrupt


def _comparisons(path: Path) -> "dict[str, Comparison]":
    """Return the comparison of each model with `a`; empty if no trial of `a` is ok.

    More rounds may follow, so each comparison uses the stricter error rate of `run --until`.
    """
    from gpubench.analysis.compare import Question, compare_rows
    from gpubench.rows.read import load

    loaded = load([path])
    looked_again = replace(loaded, frame=loaded.frame.assign(until=PADDED - 1))
    try:
        return {c.subject_name: c for c in compare_rows(looked_again, Question(by="model", baseline="a")).comparisons}
    except UserError:
        return {}


def _clock(options: Options, device: "Device") -> dict[str, float]:
    """Return the times that the suite's model `clock` measured; empty if its trial failed."""
    from gpubench.cli.child import case_of, result_of
    from gpubench.suite import files

    case = case_of(files.find(str(SUITE)), replace(options, models=("clock",), mode="full"), device)
    try:
        measurement = result_of("trial", case, "measurement", time_limit_seconds=300)
    except UserError:
        return {}
    return dict(measurement["quality"]) if measurement["status"] == "ok" else {}


def _precisions(options: Options, device: "Device", folder: Path) -> Iterator[SelftestCheck]:
    """Yield a check that every precision passes its proof, and a check that a wrong precision fails its proof."""
    from gpubench.rows.read import load

    honest, liar = folder / "precisions.csv", folder / "liar.csv"
    _run(replace(options, models=("a",), precision="all", mode="quick", out=honest))
    _run(replace(options, models=("liar",), precision="mixed", mode="quick", out=liar))
    rows = list(load([honest]).frame.itertuples())
    proved = ", ".join(f"{row.precision} {row.precision_error:.0e}" for row in rows if row.status == "ok")
    bad = [row for row in rows if row.status not in {"ok", "unsupported"}]
    wrong = "; ".join(f"{row.precision} {row.status}: {row.reason}" for row in bad)
    yield SelftestCheck("precisions", bool(proved) and not bad, wrong or f"error against float64: {proved}")
    rows = list(load([liar]).frame.itertuples())
    unsupported = all(row.status == "unsupported" for row in rows)
    refused = all(row.status == "failed" and "asked for" in str(row.reason) for row in rows)
    detail = f"{device.mixed} that computes in fp32 {'is refused' if refused else 'passed'}"
    detail = f"{device.mixed} is unsupported here" if unsupported else detail
    yield SelftestCheck("label", refused or unsupported, detail)


def check_timer(clock: Mapping[str, float]) -> SelftestCheck:
    """Check that the timer resolves 10 microseconds."""
    if not clock:
        return SelftestCheck("timer", False, "the trial that times the clock failed; run `gpubench doctor`")
    resolution = clock["resolution_seconds"]
    return SelftestCheck("timer", resolution <= 1e-5, f"resolution {resolution * 1e9:.0f} ns")


def check_overhead(clock: Mapping[str, float]) -> SelftestCheck:
    """Check that the clock adds at most OVERHEAD to a loop, by its time per step and against the bare loop."""
    from gpubench.analysis import stats

    if not clock:
        return SelftestCheck("clock overhead", False, "not measured")
    share = clock["clock_seconds_per_step"] / clock["step_seconds"]
    pairs = [ratio for name, ratio in clock.items() if name.startswith("pair_")]
    low, high = stats.median_interval(pairs) or (min(pairs), max(pairs))
    detail = (
        f"{clock['clock_seconds_per_step'] * 1e6:.1f} us a step, {share:.2%} of a step of"
        f" {clock['step_seconds'] * 1e3:.2g} ms; clocked / bare loop {stats.median(pairs):.4f} [{low:.4f}, {high:.4f}]"
    )
    return SelftestCheck("clock overhead", share <= OVERHEAD and low <= 1 + OVERHEAD, detail)


def check_verdict(name: str, comparison: "Comparison | None", expected: Collection[str]) -> SelftestCheck:
    """Check that the comparison with `a` has one of the expected verdicts."""
    if comparison is None:
        return SelftestCheck(name, False, "no trial to compare")
    ratio = comparison.ratio
    interval = f" [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.low and ratio.high else ""
    trials = f"{comparison.subject.trials} and {comparison.other.trials} trials"
    detail = f"{comparison.verdict}, ratio {ratio.value:.3f}{interval}, {trials}"
    return SelftestCheck(name, comparison.verdict in expected, detail)


def check_projection(projected: Sequence[float], full: Sequence[float]) -> SelftestCheck:
    """Check that the median projection of sampled trials is within PROJECTION of the median full run."""
    from gpubench.analysis import stats

    if not projected or not full:
        return SelftestCheck("projection", False, "no trial to compare")
    ratio = stats.median(projected) / stats.median(full)
    detail = (
        f"projected {stats.median(projected):.2f} s, full {stats.median(full):.2f} s, ratio {ratio:.3f}"
        f" (limit {PROJECTION:.0%}), {len(projected)} and {len(full)} trials"
    )
    return SelftestCheck("projection", abs(ratio - 1) <= PROJECTION, detail)


def _seconds(path: Path, models: Sequence[str]) -> list[float]:
    from gpubench.rows.read import load

    frame = load([path]).frame
    return [float(value) for value in frame[(frame["status"] == "ok") & frame["model"].isin(models)]["seconds"]]
