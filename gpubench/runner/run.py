"""`gpubench run` from beginning to end: plan, find batches, then run each trial and write its row."""

import hashlib
import json
import math
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from gpubench.errors import UserError
from gpubench.hardware import environment as env
from gpubench.hardware import host
from gpubench.hardware.readers import readers, state_of
from gpubench.hardware.telemetry import CardReader, Sampler
from gpubench.plan.forecast import forecast
from gpubench.plan.plan import (
    SAMPLED_REPEATS,
    Options,
    check_names,
    check_processes,
    choose_devices,
    plan,
    rounds,
    schedule,
)
from gpubench.plan.resolve import find_data, find_weights, out_file, print_plan
from gpubench.rows import write as records
from gpubench.rows.row import Row
from gpubench.runner import measured_peaks
from gpubench.runner.batch_search import Answer, Batches, confirm
from gpubench.runner.nodes import NodeLost, Nodes
from gpubench.runner.process import Outcome, RunChild, describe, run_child
from gpubench.runner.progress import TrialProgress
from gpubench.runner.record import Setting, row_of
from gpubench.runner.resume import Earlier, case_terms, terms_of
from gpubench.runner.signals import STOPPED, Interrupts
from gpubench.runner.slurm import PLAN
from gpubench.runner.stopping import standing, why_stop, widths_of
from gpubench.suite import files
from gpubench.suite.files import LoadedSuite
from gpubench.suite.trial import (
    FINISHED,
    GOOD,
    Case,
    Measurement,
    Status,
    Trial,
    measurement_from_json,
    trial_from_json,
    trial_to_json,
)

INTERRUPTED = 130
SOME_FAILED = 4
STATUS_OF_END: Mapping[str, Status] = {"died": "failed", "timed_out": "timed_out", "over_memory": "out_of_memory"}
"""The status of a trial whose process ended without an answer."""
LEAPS = 3
"""How often a first look tries a larger batch, where the one that it predicted left much of the memory free."""
COLLECTIVE_SECONDS = 300.0
"""How long a process waits for the others in a collective, a quarter of the time limit where that is less."""
SOAK_SECONDS = 30.0
"""A cold accelerator clocks higher than a warm one; so it is warmed before anything counts."""
SOAK_AFTER_SEARCH_SECONDS = 10.0
"""The probes of a batch search have begun it, and each trial waits until its own clock and temperature are flat."""


Found = Callable[[Path, Collection[str]], Iterable[str]]
"""Lines that say what the rows of these sessions in a file show."""


def run(
    options: Options,
    console: Console | None = None,
    run_child: RunChild = run_child,
    found: Found = lambda path, sessions: (),
) -> int:
    """Measure what `options` ask for and append a row per trial; returns the exit code.

    Everything that touches a device goes through `run_child`, one fresh process a call. `found` gives the lines with
    which a run ends: what its rows say.
    """
    console = console or Console(stderr=True, highlight=False)
    with Interrupts() as interrupts:
        try:
            return _run(options, console, run_child, found, interrupts)
        except KeyboardInterrupt:
            console.print(
                "\nstopped before the first trial: no row was added; give the same command again", markup=False
            )
            return INTERRUPTED


def _run(options: Options, console: Console, run_child: RunChild, found: Found, interrupts: Interrupts) -> int:
    loaded = files.find_all(options.suites)
    facts = describe(run_child) if any(each.suite.torch for each in loaded) else env.cpu_facts()
    there = env.devices_of(facts)
    devices = {device.device: device for device in choose_devices(options.device, there)}
    check_processes(options, list(devices.values()), there, env.cpu_count())
    check_names(loaded, options, list(devices.values()))
    cards = readers(devices.values())
    environment = env.environment_of(facts)
    folders, data = find_data(loaded, options, console)
    weights = find_weights(loaded, options, console)
    cases = plan(loaded, options, list(devices.values()), data, weights, environment.cpu_count)
    path = out_file(options, loaded, list(devices.values()))
    runner = Runner(
        suites={each.name: each for each in loaded},
        options=options,
        devices=devices,
        cards=cards,
        environment=environment,
        path=path,
        folders=folders,
        run_child=run_child,
        found=found,
        interrupts=interrupts,
    )
    if options.dry_run:
        runner.read_earlier(cases, console)
        print_plan(cases, options, path, runner.outlook(cases))
        return 0
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
        cards: Mapping[str, CardReader | None],
        environment: env.Environment,
        path: Path,
        folders: Mapping[str, Path | None],
        run_child: RunChild,
        found: Found = lambda path, sessions: (),
        interrupts: Interrupts | None = None,
    ) -> None:
        self.suites, self.options, self.devices, self.cards = suites, options, devices, cards
        self.environment, self.path, self.folders = environment, path, folders
        self.run_child, self.found = run_child, found
        self.session = secrets.token_hex(6)
        self.sessions: set[str] = set()
        """Of the rows that were written."""
        self.earlier: Earlier | None = None
        self.on_event: Callable[[Mapping[str, Any]], None] = lambda event: None
        self.say: Callable[[str], None] = lambda line: None
        self.peaks: dict[tuple[str, str, int], measured_peaks.Peak | None] = {}
        """Measured peaks by device, precision and threads."""
        self.soaked: set[str] = set()
        self.interrupts = interrupts or Interrupts()
        self.nodes: Nodes | None = None
        self._cpu_energy, self._visible = host.cpu_energy(), host.all_processes_visible()

    def lead(self, cases: Sequence[Case], console: Console) -> int:
        """Open the file, go on where an earlier run stopped, and run."""
        records.check_writable(self.path)
        if note := records.seal(self.path):
            console.print(note, markup=False)
        self.read_earlier(cases, console)
        on_cpu = any(device.kind == "cpu" for device in self.devices.values())
        load = host.cpu_load(self.environment.cpu_count) if on_cpu else None
        self.environment = replace(self.environment, host_reference_seconds=host.reference_seconds())
        # The load average would count a run of ours that has just ended.
        if load and (others := load.others()) > host.SHARED_CPU:
            console.print(f"other programs take {others:.0%} of the CPUs, and times will show it", markup=False)
        if self.environment.switches and any(device.kind == "cuda" for device in self.devices.values()):
            console.print(f"set here, and figures will show it: {self.environment.switches}", markup=False)
        if plan_file := os.environ.get(PLAN):
            self._write_off(self._planned(cases)[1], Measurement("interrupted", "planned"), Path(plan_file))
        _say_what_it_can_decide(self.options, cases, console)
        for line in self.outlook(cases):
            console.print(line, markup=False, soft_wrap=True)
        return self.run(cases, console)

    def read_earlier(self, cases: Sequence[Case], console: Console) -> None:
        """Read the rows of an earlier run, where the file has some; raises UserError where they do not belong to it."""
        if self.path.exists():
            self.earlier = Earlier(self.path)
            for problem in self.earlier.problems:
                console.print(problem, markup=False)
            states = {name: state_of(device, self.cards[name]) for name, device in self.devices.items()}
            self.earlier.check(cases, self.options, self.devices, states, self.environment)
        self.batches = Batches(
            self.suites,
            self.devices,
            self.options,
            known=self.earlier.batch_of if self.earlier else lambda case: None,
            measure=lambda trial: self.measure(trial)[0],
            say=lambda line: self.say(line),
        )

    def outlook(self, cases: Sequence[Case]) -> list[str]:
        """Lines said before anything runs: what is there already, what is to do, and how long that takes."""
        done, left = self._planned(cases)
        if not left and not self.options.until:
            return [f"{self.path}: every trial is already there"]
        lines = []
        if done:
            lines = [f"{done} of {done + len(left)} trials are in {self.path} already; {len(left)} to do"]
        waiting = {id(trial.case): trial.case for trial in left}.values()
        searches = [case for case in waiting if self.batches.to_search(case)]
        return lines + forecast(left, len(searches), self.options, datetime.now())

    def follow(self, nodes: Nodes, console: Console) -> int:
        """Run this machine's share of what node 0 says; returns the exit code that node 0 ends with."""
        console.print(nodes.trouble or f"node {nodes.node}: following {nodes.host}", markup=False)
        self.say = lambda line: console.print(line, markup=False)
        try:
            for number, task in nodes.tasks():
                self._do(number, task, nodes, console)
        except KeyboardInterrupt:
            console.print(f"\nstopped: node {nodes.node} has left the run; rows are on node 0", markup=False)
            return INTERRUPTED
        console.print(nodes.trouble or nodes.text, markup=False)
        return nodes.code

    def _do(self, number: int, task: Mapping[str, Any], nodes: Nodes, console: Console) -> None:
        """One task that node 0 gave."""
        if task["task"] != "trial":
            self.run_child(task, time_limit_seconds=task["seconds"] + 120)
            return
        trial = trial_from_json(task["trial"])
        own = str(self.suites[trial.case.suite].path)
        trial = replace(trial, case=replace(trial.case, suite_path=own))
        console.print(f"node {nodes.node}: {trial.case.label}", markup=False)
        nodes.report(self._measure_here(trial, nodes.place(number))[0])

    def run(self, cases: Sequence[Case], console: Console) -> int:
        """Batches, then rounds; Ctrl-C keeps what is finished and writes the rest as interrupted."""
        earlier = self.earlier
        statuses: list[str] = []
        waiting: list[Trial] = []
        times: dict[str, list[float]] = {}
        before = [status for case in cases if earlier for status in earlier.statuses_of(case)]
        before_this, _ = self._planned(cases)
        for each in cases:
            known = self.batches.so_far(each)
            if earlier and known and (measured := earlier.seconds_of(known)):
                times[known.label] = measured
        try:
            with TrialProgress() as progress:
                self.on_event, self.say = progress.lap, progress.say
                for batch in self._batches(cases, times, statuses):
                    waiting = [trial for trial in batch if self.batches.so_far(trial.case)]
                    progress.expect(len(waiting))
                    wanted = [trial.case for trial in waiting if not trial.case.refusal]
                    while waiting:
                        self.interrupts.check()
                        # A twin comes after the cases whose batches it takes, where those are still to come.
                        turn = next((at for at, each in enumerate(waiting) if not self.batches.waits(each.case)), 0)
                        waiting = [waiting[turn], *waiting[:turn], *waiting[turn + 1 :]]
                        trial = self._with_batch(waiting[0])
                        if trial is None:
                            waiting = waiting[1:]
                            progress.expect(-1)
                            continue
                        if not trial.case.refusal:
                            warm = len(self.devices) == 1 and self.batches.to_confirm(trial.case)
                            seconds = SOAK_AFTER_SEARCH_SECONDS if warm else SOAK_SECONDS
                            self._soak({device for case in wanted for device in _devices_of(case)}, seconds)
                            self._find_peaks([trial.case])
                        progress.start(trial.case.label, self.suites[trial.case.suite].suite.unit)
                        trial, row = self._row(trial)
                        with self.interrupts.held():
                            records.append(self.path, [row])  # per row: a killed run loses nothing
                            self.sessions.add(row.session)
                            progress.finish(trial, row)
                            statuses.append(row.status)
                            own = times.setdefault(trial.case.label, [])
                            if row.status == "ok" and row.seconds is not None:
                                own.append(row.seconds)
                            waiting = waiting[1:]
                            if len(statuses) == (1 if self.options.mode == "full" else len(cases)) and waiting:
                                progress.say(progress.pace(datetime.now()))
        except (KeyboardInterrupt, NodeLost) as stop:
            # With the batches that are known by now, so that a later run need not look for them.
            rest = [replace(trial, case=case) for trial in waiting if (case := self.batches.so_far(trial.case))]
            finished = before_this + sum(status in FINISHED for status in statuses)
            done = f"{finished} of {before_this + len(statuses) + len(rest)} trials are in {self.path}"
            named = "" if self.path == self.options.out else f" with --out {self.path}"
            done = f"{done}; the same command{named} goes on"
            lost = isinstance(stop, NodeLost)
            with self.interrupts.held():
                self._write_off(rest, Measurement("failed" if lost else "interrupted", str(stop) or STOPPED))
            console.print(f"{stop}; {done}" if lost else f"\nstopped: {done}", markup=False, soft_wrap=True)
            return SOME_FAILED if lost else INTERRUPTED
        if statuses:
            for line in self.found(self.path, self.sessions):
                console.print(line, markup=False, soft_wrap=True)
            ending = f"wrote {self.path}\nnext: gpubench compare {self.path} --charts charts"
            console.print(ending, markup=False, soft_wrap=True)
        return 0 if GOOD.issuperset([*before, *statuses]) else SOME_FAILED

    def _with_batch(self, trial: Trial) -> Trial | None:
        """The trial with its case's batch; None where there is nothing to run, nor to tell for the first time."""
        told = self.batches.so_far(trial.case)
        case = self.batches.of(trial.case) if told else None
        again = told is not None and bool(told.refusal) and not trial.case.refusal
        return None if case is None or again else replace(trial, case=case)

    def _planned(self, cases: Sequence[Case]) -> tuple[int, list[Trial]]:
        """How many of the planned trials an earlier run has finished, and those that are left."""
        planned = schedule(cases, self._rounds, self.options.seed)
        left = self._left(planned)
        return len(planned) - len(left), [trial for trial in left if self.batches.so_far(trial.case)]

    @property
    def _rounds(self) -> int:
        """With --until a round begun is ended, so that all cases have as many trials."""
        begun = self.earlier.rounds if self.options.until and self.earlier else 0
        return max(self.options.rounds, begun)

    def _left(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials that an earlier run has not finished."""
        return [trial for trial in trials if not (self.earlier and self.earlier.has(trial))]

    def _batches(
        self, cases: Sequence[Case], times: Mapping[str, list[float]], done: Sequence[str]
    ) -> Iterator[list[Trial]]:
        """The planned rounds; then, with --until, one more at a time until there is a reason to stop.

        `times` and `done` grow while the trials run.
        """
        options = self.options
        number = self._rounds
        planned = schedule(cases, number, options.seed)
        began = time.monotonic()
        yield self._left(planned)
        if not options.until:
            return
        for this_round in islice(rounds(cases, options.seed), number, None):
            known = [replace(trial, case=self.batches.so_far(trial.case) or trial.case) for trial in this_round]
            extra = [trial for trial in known if times.get(trial.case.label)]  # the others fail every time
            spent = time.monotonic() - began
            needed = spent + spent / max(1, len(done)) * len(extra)
            why = why_stop(times, options.until, options.budget_seconds, needed)
            if why:
                self.say(f"stopped after {number} rounds: {why}")
                return
            number += 1
            self.say(f"round {number}: {standing(widths_of(times), options.until)}")
            yield extra

    def measure(self, trial: Trial) -> tuple[Measurement, Outcome]:
        """One trial in one fresh process or group of processes; raises NodeLost."""
        place = self.nodes.begin({"task": "trial", "trial": trial_to_json(trial)}) if self.nodes else None
        return self._measure_here(trial, place)

    def _measure_here(self, trial: Trial, place: Mapping[str, Any] | None) -> tuple[Measurement, Outcome]:
        case = trial.case
        limit_seconds, local = self.options.limit_seconds(case.mode), case.processes // case.nodes
        folder = self.folders[case.suite]
        placed = replace(
            trial,
            data_dir=str(folder or ""),
            weights_dir=str(self.options.weights or ""),
            checkpoint_dir=self._checkpoint_folder(case) if case.mode == "full" else "",
            tensorboard_dir=str(self.options.tensorboard.absolute()) if self.options.tensorboard else "",
        )
        on_cpu = self.devices[case.device].kind == "cpu"
        # One card's energy and clocks are not those of a group.
        card = self.cards[case.device] if case.all_processes == 1 else None
        # Nor is one machine's CPU that of several.
        cpu_energy = self._cpu_energy if case.nodes == 1 else (lambda: None)
        sampler = Sampler(card, cpu_energy, on_cpu=on_cpu, all_processes_visible=self._visible)

        def on_event(event: Mapping[str, Any]) -> None:
            sampler.hear(event)
            self.on_event(event)

        load = host.cpu_load(self.environment.cpu_count) if on_cpu and case.nodes == 1 else None
        memory = case.memory_limit_bytes if on_cpu else None
        with tempfile.TemporaryDirectory(prefix="gpubench-") as scratch:
            outcome = self.run_child(
                {
                    "task": "trial",
                    "trial": trial_to_json(placed),
                    "watched": sampler.watches,
                    "place": place,
                    "scratch": scratch,
                    "collective_seconds": min(COLLECTIVE_SECONDS, (limit_seconds or math.inf) / 4),
                },
                on_event=on_event,
                on_output=lambda line: self.say(f"    {line}"),
                on_wake=sampler.tick,
                time_limit_seconds=limit_seconds,
                # A group's agent has about as much resident as one process before it trains.
                resident_limit_bytes=memory * (local + 1) if memory and local > 1 else memory,
            )
        measurement = _measurement_of(outcome)
        telemetry = sampler.telemetry(measurement.laps)
        if load and (others := load.others()) > host.SHARED_CPU:
            telemetry = replace(telemetry, foreign_load=f"{others:.0%} of the CPUs", marks="shared")
        measurement = replace(measurement, telemetry=telemetry)
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

    def _checkpoint_folder(self, case: Case) -> str:
        """Beside the rows, whose file is named again by who goes on with a run; another device or stack has its own."""
        device = self.devices[case.device]
        terms = case_terms(case, device, state_of(device, self.cards[case.device]), self.environment)
        digest = hashlib.sha256(json.dumps(terms, sort_keys=True, default=str).encode()).hexdigest()[:8]
        return f"{self.path.absolute()}.{digest}.checkpoints"

    def _soak(self, devices: Iterable[str], seconds: float) -> None:
        """Once per device, those of one machine at the same time."""
        names = sorted(device for device in set(devices) - self.soaked if not device.startswith("cpu"))
        self.soaked.update(names)
        if not names or self.options.mode == "quick" or not self.options.soak:
            return
        self.say(f"warming {', '.join(names)} for {seconds:.0f} s, untimed")
        task = {"task": "soak", "devices": names, "seconds": seconds}
        if self.nodes:
            self.nodes.begin(task)
        self.run_child(task, time_limit_seconds=seconds + 120)

    def _find_peaks(self, cases: Iterable[Case]) -> None:
        """What the devices reach in each precision: from the cache, or measured now, before anything is timed."""
        for case in cases:
            wanted = _peak_key(case)
            if case.refusal or not self.suites[case.suite].suite.torch or wanted in self.peaks:
                continue
            name, precision, threads = wanted
            device, torch = self.devices[name], self.environment.torch
            self.peaks[wanted] = measured_peaks.known(device, torch, precision, threads)
            if self.peaks[wanted] or self.options.mode == "quick" or not self.options.peaks:
                continue
            self.say(f"measuring the peak of {name} in {precision}, once for this torch")
            try:
                soak = measured_peaks.CPU_SOAK_SECONDS  # an accelerator is warm from the soak
                self.peaks[wanted] = measured_peaks.measure(
                    device, torch, precision, threads, soak, self.say, self.run_child
                )
            except UserError as error:
                self.say(f"{error}; rows go without it")

    def _row(self, trial: Trial) -> tuple[Trial, Row]:
        """The trial as it ran, with a smaller batch than the one found where that did not fit, and its row."""
        started = datetime.now(UTC).isoformat(timespec="seconds")
        answer: Answer | None = None
        if not trial.case.refusal:
            if self.batches.to_confirm(trial.case):
                trial, answer = self._confirmed(trial)
            if not trial.case.refusal and (answer is None or trial.case.mode == "full"):
                answer = self.measure(trial)
        if answer is None:
            refused = Measurement(status=trial.case.refusal_status, reason=trial.case.refusal)
            return trial, self._as_row(trial, refused, started, None)
        measurement, outcome = answer
        inside = (outcome.answer or {}).get("train_call_seconds")
        startup = outcome.seconds - float(inside) if inside is not None else None
        return trial, self._as_row(trial, measurement, started, startup)

    def _confirmed(self, trial: Trial) -> tuple[Trial, Answer | None]:
        """The first trial at a batch that was searched for: at the one that works, with its answer.

        Of a whole run that is a quick trial beforehand: hours are not spent to find a batch too large.
        """
        mode = trial.case.mode
        first = replace(trial, case=replace(trial.case, mode="quick" if mode == "full" else mode))
        done, answer = confirm(first, self.measure, self.say)
        for _ in range(LEAPS):
            larger = self.batches.roomier(done.case, answer[0]) if answer else None
            if larger is None:
                break
            more, better = confirm(replace(done, case=larger), self.measure, self.say)
            if better is None:
                break
            done, answer = more, better
        done = replace(done, case=replace(done.case, mode=mode))
        self.batches.settle(done.case)
        return done, answer

    def _write_off(self, trials: Sequence[Trial], why: Measurement, path: Path | None = None) -> None:
        """A row for each trial that will not run."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        records.append(path or self.path, [self._as_row(trial, why, now, None) for trial in trials])

    def _as_row(self, trial: Trial, measurement: Measurement, started: str, startup: float | None) -> Row:
        device = self.devices[trial.case.device]
        setting = Setting(
            device=device,
            card=state_of(device, self.cards[device.device]),
            environment=self.environment,
            session=(self.earlier and self.earlier.session_of(trial.case)) or self.session,
            until=self.options.until,
            band=self.suites[trial.case.suite].suite.projected_over_full,
            peak=self.peaks.get(_peak_key(trial.case)),
        )
        return row_of(trial, measurement, setting, started=started, startup_seconds=startup)


def _peak_key(case: Case) -> tuple[str, str, int]:
    return case.device, measured_peaks.multiplied_in(case.precision), int(case.params["threads"])


def _devices_of(case: Case) -> list[str]:
    """The devices of this machine that the case's processes run on."""
    kind, colon, first = case.device.partition(":")
    local = case.processes // case.nodes
    return [f"{kind}:{int(first) + index}" for index in range(local)] if colon else [kind]


def _measurement_of(outcome: Outcome) -> Measurement:
    if outcome.answer is not None:
        return measurement_from_json(outcome.answer["measurement"])
    return Measurement(
        status=STATUS_OF_END[outcome.end],
        reason=outcome.reason,
        fault="crashed" if outcome.end == "died" else "",
    )


def _say_what_it_can_decide(options: Options, cases: Sequence[Case], console: Console) -> None:
    if options.mode == "quick":
        console.print("a first look: three timed steps of a case at most, so its projection is rough", markup=False)
    elif len(cases) > 1 and options.rounds < SAMPLED_REPEATS:
        console.print(
            f"{options.rounds} trial(s) per case give ratios but no verdict;"
            f" --repeats {SAMPLED_REPEATS} or more can decide",
            markup=False,
        )
