"""`gpubench run` on one screen: resolve, plan, fit batches, then trials to rows, one at a time."""

import json
import math
import os
import secrets
import signal
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from gpubench import records, suite
from gpubench.errors import UserError
from gpubench.measuring import environment as env
from gpubench.measuring.nodes import NodeLost, Nodes
from gpubench.measuring.plan import SAMPLED_REPEATS, Options, check_processes, choose_devices, plan, schedule
from gpubench.measuring.process import Outcome, describe, run_child
from gpubench.measuring.progress import TrialProgress
from gpubench.measuring.resolve import find_data, find_weights, out_file, print_plan
from gpubench.measuring.rows import Earlier, row_of, terms_of
from gpubench.measuring.search import fit_batch, with_fp32_batches
from gpubench.measuring.slurm import PLAN
from gpubench.suite import LoadedSuite
from gpubench.trial import FINISHED, Case, Measurement, Trial, measurement_from_json, trial_from_json, trial_to_json

INTERRUPTED = 130
SOME_FAILED = 4
SAMPLED_LIMIT_SECONDS = 1800.0
"""A sampled trial that takes longer hangs, or needs a --time-limit that says so."""
COLLECTIVE_SECONDS = 300.0
"""How long a process waits for the others in a collective, a quarter of the time limit where that is less."""
STOPS = {
    signal.SIGTERM: "the run was ended by SIGTERM before this trial ended",
    signal.SIGUSR2: "the time of the job was over before this trial ended",
}
SOAK_SECONDS = 30.0
"""A cold accelerator clocks higher than a warm one; so it is warmed before anything counts (DESIGN section 4)."""


def run(options: Options) -> int:
    """Measure what `options` ask for and append a row per trial; returns the exit code."""
    console = Console(stderr=True, highlight=False)
    loaded = suite.find_all(options.suites)
    facts = describe() if any(each.suite.torch for each in loaded) else env.cpu_facts()
    there = env.devices_of(facts)
    devices = {device.device: device for device in choose_devices(options.device, there)}
    check_processes(options, list(devices.values()), there)
    environment = env.environment_of(facts)
    folders, data = find_data(loaded, options, console)
    weights = find_weights(loaded, options, console)
    cases = plan(loaded, options, list(devices.values()), data, weights, environment.cpu_count)
    path = out_file(options, loaded, list(devices.values()))
    if options.dry_run:
        print_plan(cases, options, path)
        return 0

    runner = Runner(
        suites={each.name: each for each in loaded},
        options=options,
        devices=devices,
        environment=environment,
        path=path,
        folders=folders,
    )
    with _terminate_as_interrupt():
        if options.nodes == 1:
            return runner.lead(cases, console)
        terms = terms_of(cases, list(devices.values()), environment)
        with Nodes(options.nodes, options.rendezvous, terms, options.time_limit_seconds) as nodes:
            return run_as_one_of(nodes, runner, cases, console)


def run_as_one_of(nodes: Nodes, runner: "Runner", cases: Sequence[Case], console: Console) -> int:
    """This machine's part in a run over several: node 0 leads, the others follow and end as it does."""
    if nodes.node > 0:
        return runner.follow(nodes, console)
    runner.nodes = nodes
    code, text = INTERRUPTED, "node 0 was stopped"
    try:
        code = runner.lead(cases, console)
        text = f"rows are on node 0 in {runner.path}"
    except UserError as error:
        code, text = error.exit_code, str(error)
        raise
    finally:
        nodes.end(code, text)
    return code


class Runner:
    """The session: what stays the same from trial to trial."""

    def __init__(
        self,
        *,
        suites: Mapping[str, LoadedSuite],
        options: Options,
        devices: Mapping[str, env.Device],
        environment: env.Environment,
        path: Path,
        folders: Mapping[str, Path | None],
    ) -> None:
        self.suites, self.options, self.devices = suites, options, devices
        self.environment, self.path = environment, path
        self.session = ""
        self.nodes: Nodes | None = None
        self.folders = folders
        self.on_event: Callable[[Mapping[str, Any]], None] = lambda event: None
        self.say: Callable[[str], None] = lambda line: None

    def lead(self, cases: Sequence[Case], console: Console) -> int:
        """Open the file, go on where an earlier run stopped, and run."""
        records.check_writable(self.path)
        if note := records.seal(self.path):
            console.print(note, markup=False)
        earlier = Earlier(self.path) if self.path.exists() else None
        if earlier:
            for problem in earlier.problems:
                console.print(problem, markup=False)
            earlier.check(cases, self.options, self.devices, self.environment)
        self.session = (earlier.session if earlier else None) or secrets.token_hex(6)
        if plan_file := os.environ.get(PLAN):
            trials = _left(schedule(cases, self.options.rounds, self.options.seed), earlier)
            self._write_off(trials, Measurement("interrupted", "planned"), Path(plan_file))
        _say_what_it_can_decide(self.options, cases, console)
        return self.run(cases, earlier, console)

    def follow(self, nodes: Nodes, console: Console) -> int:
        """Run this machine's share of what node 0 says; returns the exit code that node 0 ends with."""
        console.print(nodes.trouble or f"node {nodes.node}: following {nodes.host}", markup=False)
        self.say = lambda line: console.print(line, markup=False)
        for number, task in nodes.tasks():
            if task["task"] == "trial":
                trial = trial_from_json(task["trial"])
                own = str(self.suites[trial.case.suite].path)
                trial = replace(trial, case=replace(trial.case, suite_path=own))
                console.print(f"node {nodes.node}: {trial.case.label}", markup=False)
                nodes.report(self._measure_here(trial, nodes.place(number))[0])
            else:
                run_child(task, time_limit_seconds=task["seconds"] + 120)
        console.print(nodes.trouble or nodes.text, markup=False)
        return nodes.code

    def run(self, cases: Sequence[Case], earlier: Earlier | None, console: Console) -> int:
        """Batches, then rounds; Ctrl-C keeps what is finished and writes the rest as interrupted."""
        statuses: list[str] = []
        trials: list[Trial] = []
        done = 0
        try:
            ready = self._fit_batches([self._try_fp16(case) for case in cases], earlier, console)
            trials = _left(schedule(ready, self.options.rounds, self.options.seed), earlier)
            if earlier and not trials:
                console.print(f"{self.path}: every trial is already there", markup=False)
            used = {device for trial in trials if not trial.case.refusal for device in self._devices_of(trial.case)}
            self._soak(used, console)
            with TrialProgress(len(trials)) as progress:
                self.on_event, self.say = progress.lap, progress.say
                for number, trial in enumerate(trials, start=1):
                    progress.start(trial.case.label, number, self.suites[trial.case.suite].suite.unit)
                    row = self._row(trial)
                    records.append(self.path, [row])  # per row: a killed run loses nothing
                    progress.finish(trial, row)
                    statuses.append(row.status)
                    done = number
        except KeyboardInterrupt as stop:
            if not trials:  # stopped in the batch search
                trials = _left(schedule(cases, self.options.rounds, self.options.seed), earlier)
            why = str(stop) or "the run was stopped before this trial ended"
            self._write_off(trials[done:], Measurement("interrupted", why))
            console.print(
                f"\ninterrupted: {done} of {len(trials)} trials are in {self.path};"
                " the same command with --out on that file goes on",
                markup=False,
            )
            return INTERRUPTED
        except NodeLost as lost:
            if not trials:
                trials = _left(schedule(cases, self.options.rounds, self.options.seed), earlier)
            self._write_off(trials[done:], Measurement("failed", str(lost)))
            console.print(f"{lost}; {done} of {len(trials)} trials are in {self.path}", markup=False)
            return SOME_FAILED
        if trials:
            console.print(f"wrote {self.path}\nnext: gpubench compare {self.path}", markup=False)
        return 0 if all(status in FINISHED for status in statuses) else SOME_FAILED

    def measure(self, trial: Trial) -> tuple[Measurement, Outcome]:
        """One trial in one fresh process or group of processes; raises NodeLost."""
        place = self.nodes.begin({"task": "trial", "trial": trial_to_json(trial)}) if self.nodes else None
        return self._measure_here(trial, place)

    def _measure_here(self, trial: Trial, place: Mapping[str, Any] | None) -> tuple[Measurement, Outcome]:
        case = trial.case
        folder = self.folders[case.suite]
        placed = replace(trial, data_dir=str(folder or ""), weights_dir=str(self.options.weights or ""))
        on_cpu = self.devices[case.device].kind == "cpu"
        limit_seconds = self._time_limit(case)
        local = case.processes // case.nodes
        memory = case.memory_limit_bytes if on_cpu else None
        with tempfile.TemporaryDirectory(prefix="gpubench-") as scratch:
            outcome = run_child(
                {
                    "task": "trial",
                    "trial": trial_to_json(placed),
                    "place": place,
                    "scratch": scratch,
                    "collective_seconds": min(COLLECTIVE_SECONDS, (limit_seconds or math.inf) / 4),
                },
                on_event=self.on_event,
                on_output=lambda line: self.say(f"    {line}"),
                time_limit_seconds=limit_seconds,
                # A group's agent has about as much resident as one process before it trains.
                resident_limit_bytes=memory * (local + 1) if memory and local > 1 else memory,
            )
        measurement = _measurement_of(outcome)
        limit = case.memory_limit_bytes
        if on_cpu and limit and local == 1 and measurement.status == "ok":
            # The child's own peak misses nothing of its own, the parent's looks see its loader processes as well.
            peak = max(measurement.peak_memory_bytes or 0, outcome.peak_resident_bytes or 0)
            measurement = replace(measurement, peak_memory_bytes=peak)
        if on_cpu and limit and (measurement.peak_memory_bytes or 0) > limit:
            measurement = replace(
                measurement, status="out_of_memory", reason="peak resident memory passed --memory-limit"
            )
        return measurement, outcome

    def _devices_of(self, case: Case) -> list[str]:
        """The devices of this machine that the case's processes run on."""
        kind, colon, first = case.device.partition(":")
        local = case.processes // case.nodes
        return [f"{kind}:{int(first) + index}" for index in range(local)] if colon else [kind]

    def _soak(self, devices: Iterable[str], console: Console) -> None:
        names = sorted(device for device in devices if not device.startswith("cpu"))
        if not names or self.options.mode == "quick":
            return
        console.print(f"warming {', '.join(names)} for {SOAK_SECONDS:.0f} s, untimed", markup=False)
        task = {"task": "soak", "devices": names, "seconds": SOAK_SECONDS}
        if self.nodes:
            self.nodes.begin(task)
        run_child(task, time_limit_seconds=SOAK_SECONDS + 120)

    def _time_limit(self, case: Case) -> float | None:
        if self.options.time_limit_seconds is not None:
            return self.options.time_limit_seconds
        return None if case.mode == "full" else SAMPLED_LIMIT_SECONDS

    def _row(self, trial: Trial) -> records.Row:
        started = datetime.now(UTC).isoformat(timespec="seconds")
        if trial.case.refusal:
            refused = Measurement(status=trial.case.refusal_status, reason=trial.case.refusal)
            return self._as_row(trial, refused, started, None)
        measurement, outcome = self.measure(trial)
        answer = outcome.answer or {}
        inside = answer.get("train_call_seconds")
        startup = outcome.seconds - float(inside) if inside is not None else None
        return self._as_row(trial, measurement, started, startup)

    def _write_off(self, trials: Sequence[Trial], why: Measurement, path: Path | None = None) -> None:
        """A row for each trial that will not run."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        records.append(path or self.path, [self._as_row(trial, why, now, None) for trial in trials])

    def _as_row(self, trial: Trial, measurement: Measurement, started: str, startup: float | None) -> records.Row:
        return row_of(
            trial,
            measurement,
            device=self.devices[trial.case.device],
            environment=self.environment,
            session=self.session,
            started=started,
            band=self.suites[trial.case.suite].suite.projected_over_full,
            startup_seconds=startup,
        )

    def _try_fp16(self, case: Case) -> Case:
        """On a CPU one forward and backward decides whether torch has fp16 kernels for this model."""
        on_cpu = self.devices[case.device].kind == "cpu"
        uses_torch = self.suites[case.suite].suite.torch
        if case.refusal or not (on_cpu and uses_torch and case.precision.startswith("fp16")):
            return case
        small = replace(case, batch_size=case.batch_size or 8, mode="probe")
        answer, _ = self.measure(Trial(small, 0, self.options.seed))
        if answer.status == "failed":
            return replace(case, refusal=f"one step of this model fails here: {answer.reason}")
        return case

    def _fit_batches(self, cases: Iterable[Case], earlier: Earlier | None, console: Console) -> list[Case]:
        def say(line: str) -> None:
            console.print(line, markup=False)

        fitted = []
        for case in cases:
            known = earlier.batch_of(case) if earlier else None
            if case.refusal or case.batch_size or case.batch_policy == "max-fp32":
                fitted.append(case)
            elif known is not None:
                fitted.append(
                    replace(
                        case,
                        batch_size=int(known["batch_size"]),
                        batch_capped=bool(known["batch_capped"] is True),
                        batch_curve=_curve(known["batch_curve"]),
                    )
                )
            else:
                samples = self.suites[case.suite].samples(case.params)
                fitted.append(
                    fit_batch(
                        case,
                        self.devices[case.device],
                        self.options,
                        samples // 20 // case.processes or None,
                        lambda trial: self.measure(trial)[0],
                        say,
                    )
                )
        return with_fp32_batches(fitted)


def _left(trials: Sequence[Trial], earlier: Earlier | None) -> list[Trial]:
    """The trials that an earlier run has not finished."""
    return [trial for trial in trials if not (earlier and earlier.has(trial))]


def _curve(text: object) -> tuple[tuple[int, float, int], ...]:
    return tuple(tuple(point) for point in json.loads(str(text))) if text else ()


def _measurement_of(outcome: Outcome) -> Measurement:
    if outcome.answer is not None:
        return measurement_from_json(outcome.answer["measurement"])
    status = {"timed_out": "timed_out", "over_memory": "out_of_memory"}.get(outcome.end, "failed")
    return Measurement(status=status, reason=outcome.reason)  # type: ignore[arg-type]


def _say_what_it_can_decide(options: Options, cases: Sequence[Case], console: Console) -> None:
    if options.mode != "quick" and len(cases) > 1 and options.rounds < SAMPLED_REPEATS:
        console.print(
            f"{options.rounds} trial(s) per case give ratios but no verdict;"
            f" --repeats {SAMPLED_REPEATS} or more can decide",
            markup=False,
        )


class _terminate_as_interrupt:
    """SIGTERM, as schedulers send it, ends a run the way Ctrl-C does; and so does their notice that time is up."""

    def __enter__(self) -> None:
        def interrupt(number: int, frame: object) -> None:
            raise KeyboardInterrupt(STOPS[signal.Signals(number)])

        self._before = {number: signal.signal(number, interrupt) for number in STOPS}

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
