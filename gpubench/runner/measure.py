"""Runs one trial in a child process (with --processes, in several), and returns the trial's measurement."""

import hashlib
import json
import math
from dataclasses import asdict, replace

from gpubench.hardware import host
from gpubench.hardware.telemetry import Sampler
from gpubench.runner.process import Message, Outcome, RunChild
from gpubench.runner.progress import TrialProgress
from gpubench.runner.resume import case_terms
from gpubench.runner.session import Session
from gpubench.suite.trial import Case, Fault, Measurement, Status, Trial, measurement_from_json

COLLECTIVE_SECONDS = 300.0
"""Longest wait of a process for the others in a collective operation, in seconds; at most 1/4 of the time limit."""


class Measure:
    """Runs a trial of the session with its time and memory limits, and reads the device's sensors meanwhile."""

    def __init__(self, session: Session, run_child: RunChild, progress: TrialProgress) -> None:
        self._session, self._run_child, self._progress = session, run_child, progress
        self._cpu_energy, self._all_visible = host.cpu_energy(), host.all_processes_visible()

    def __call__(self, trial: Trial) -> Measurement:
        """Run the trial and return its measurement, however its process ended."""
        case = trial.case
        on_cpu = case.device == "cpu"
        # One card's sensors do not describe several processes. One machine's CPU does not describe several machines.
        card = self._session.cards[case.device] if case.processes == 1 else None
        cpu_energy = self._cpu_energy if case.nodes == 1 else (lambda: None)
        sampler = Sampler(card, cpu_energy, on_cpu=on_cpu, all_processes_visible=self._all_visible)
        load = host.cpu_load(self._session.environment.cpu_count) if on_cpu and case.nodes == 1 else None
        outcome = self._in_child(self._with_folders(trial), sampler)
        measurement = _measurement_of(outcome)
        telemetry = sampler.telemetry(measurement.laps)
        if load and (others := load.others()) > host.SHARED_CPU:
            telemetry = replace(telemetry, foreign_load=f"{others:.0%} of the CPUs", marks="shared")
        inside = (outcome.answer or {}).get("train_call_seconds")
        startup_seconds = outcome.seconds - inside if isinstance(inside, float) else None
        measurement = replace(measurement, telemetry=telemetry, start=outcome.start, startup_seconds=startup_seconds)
        if on_cpu and case.memory_limit_bytes:
            measurement = _within_limit(measurement, case, case.memory_limit_bytes, outcome)
        return measurement

    def _with_folders(self, trial: Trial) -> Trial:
        options, folder = self._session.options, self._session.folders.get(trial.case.suite)
        return replace(
            trial,
            data_dir=str(folder or ""),
            weights_dir=str(options.weights or ""),
            checkpoint_dir=checkpoint_folder(self._session, trial.case) if trial.case.mode == "full" else "",
            tensorboard_dir=str(options.tensorboard.absolute()) if options.tensorboard else "",
        )

    def _in_child(self, trial: Trial, sampler: Sampler) -> Outcome:
        case = trial.case
        limit_seconds, local = self._session.options.limit_seconds(case.mode), case.processes // case.nodes
        memory = case.memory_limit_bytes if case.device == "cpu" else None

        def on_event(event: Message) -> None:
            sampler.note(event)
            self._progress.lap(event)

        return self._run_child(
            {
                "task": "trial",
                "trial": asdict(trial),
                "watched": sampler.watches,
                "place": None,
                "collective_seconds": min(COLLECTIVE_SECONDS, (limit_seconds or math.inf) / 4),
            },
            on_event=on_event,
            # A progress bar rewrites its line: print its last state.
            on_output=lambda line: self._progress.say("    " + line.rpartition("\r")[2]),
            on_wake=sampler.tick,
            time_limit_seconds=limit_seconds,
            # The child that starts these processes needs memory too: about as much as one of them before training.
            resident_limit_bytes=memory * (local + 1) if memory and local > 1 else memory,
        )


def checkpoint_folder(session: Session, case: Case) -> str:
    """Return the folder of the case's checkpoints, beside the CSV file; its name has a hash of `case_terms`."""
    terms = case_terms(case, session.devices[case.device], session.card_state(case.device), session.environment)
    digest = hashlib.sha256(json.dumps(terms, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return f"{session.path.absolute()}.{digest}.checkpoints"


def _measurement_of(outcome: Outcome) -> Measurement:
    if outcome.answer is not None:
        try:
            return measurement_from_json(outcome.answer["measurement"])
        except (TypeError, KeyError, AttributeError):
            return Measurement("failed", "the process sent a result that gpubench cannot read")
    status: Status = "timed_out" if outcome.end == "timed_out" else "failed"
    fault: Fault = "crashed" if outcome.end == "died" else ""
    return Measurement(status, outcome.reason, fault)


def _within_limit(measurement: Measurement, case: Case, limit_bytes: int, outcome: Outcome) -> Measurement:
    """Return the measurement on a CPU with its peak memory, and `out_of_memory` if the peak is above --memory-limit."""
    if case.processes == case.nodes and measurement.status == "ok":
        # The child measures its own peak exactly; the parent also sees the loader processes.
        peak = max(measurement.peak_memory_bytes or 0, outcome.peak_resident_bytes or 0)
        measurement = replace(measurement, peak_memory_bytes=peak)
    if outcome.end == "over_memory" or (measurement.peak_memory_bytes or 0) > limit_bytes:
        cure = "; give a smaller --batch, or --batch max" if case.batch_policy == "fixed" else ""
        reason = f"its memory passed --memory-limit ({limit_bytes / 2**20:,.0f} MiB){cure}"
        return replace(measurement, status="out_of_memory", reason=reason)
    return measurement
