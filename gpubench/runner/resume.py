"""Makes the row of a trial, and reads from the rows of an earlier run what a resumed one may skip."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from gpubench.errors import UserError
from gpubench.hardware.environment import Device, Environment, without_names
from gpubench.hardware.state import CardState
from gpubench.plan.plan import Options
from gpubench.rows.read import load
from gpubench.rows.row import Row
from gpubench.runner.measured_peaks import Peak
from gpubench.suite.suite import params_text
from gpubench.suite.trial import FINISHED, TRAINED, Case, Lap, Measurement, Trial


def row_of(
    trial: Trial,
    measurement: Measurement,
    *,
    device: Device,
    card: CardState,
    environment: Environment,
    session: str,
    until: float | None,
    started: str,
    band: tuple[float, float] | None,
    startup_seconds: float | None,
    peak: Peak | None = None,
) -> Row:
    """The row of one trial.

    `band` is the suite's measured band of projected/full seconds, `peak` what the device was measured to reach
    in the trial's precision.
    """
    case = trial.case
    seconds = measurement.seconds if measurement.status in TRAINED else None
    projected = seconds is not None and not measurement.measured
    low, high = (seconds / band[1], seconds / band[0]) if projected and band and seconds else (None, None)
    # A sampled trial has not trained, and made-up images teach nothing: neither carries a quality.
    quality = measurement.quality if trial.teaches else {}
    threads = measurement.settings.get("threads")
    unsteady = "unsteady" if measurement.steady.startswith("unsteady") else ""
    return Row(
        suite=case.suite,
        suite_version=case.suite_version,
        suite_digest=case.suite_digest,
        model=case.model,
        rung=case.rung,
        studies=" ".join(case.studies),
        precision=case.precision,
        batch_size=case.batch_size,
        batch_policy=case.batch_policy,
        batch_capped=case.batch_capped if case.batch_policy != "fixed" else None,
        batch_curve=json.dumps(case.batch_curve, separators=(",", ":")) if case.batch_curve else "",
        params=params_text(case.params),
        processes=case.all_processes,
        nodes=case.nodes,
        data=case.data,
        weights=case.weights,
        mode=case.mode,
        seed=trial.seed,
        memory_limit_bytes=case.memory_limit_bytes,
        card=device.card,
        device=device.device,
        device_hash=device.device_hash,
        card_memory_bytes=device.memory_bytes,
        driver=device.driver,
        threads=int(threads) if threads else None,
        memory_format=measurement.settings.get("memory_format", ""),
        **asdict(card),
        **asdict(environment),
        session=session,
        trial=trial.index,
        until=until,
        started=started,
        status=measurement.status,
        reason=without_names(measurement.reason),
        seconds=_rounded(seconds),
        seconds_low=_rounded(low),
        seconds_high=_rounded(high),
        measured="" if seconds is None else "projected" if projected else "measured",
        samples_per_second=_rounded(measurement.samples_per_second),
        train_seconds=_rounded(measurement.train_seconds),
        valid_seconds=_rounded(measurement.valid_seconds),
        epochs=measurement.epochs,
        samples=measurement.samples,
        resumed=measurement.resumed,
        steady=measurement.steady,
        marks=" ".join(filter(None, [measurement.telemetry.marks, unsteady, "resumed" * bool(measurement.resumed)])),
        data_stall=_rounded(measurement.data_stall),
        loader_wait=_rounded(measurement.loader_wait),
        resident_samples_per_second=_rounded(measurement.resident_samples_per_second),
        run_samples=measurement.run_samples,
        step_samples=measurement.step_samples,
        flops_per_sample=_rounded(measurement.flops_per_sample),
        bytes_per_sample=_rounded(measurement.bytes_per_sample),
        ops_per_step=measurement.ops_per_step,
        odd_flops_share=_rounded(measurement.odd_flops_share),
        measured_peak_flops=_rounded(peak.flops_per_second if peak else None),
        measured_bandwidth_bytes_per_second=_rounded(peak.bytes_per_second if peak else None),
        op_overhead_seconds=_rounded(peak.op_seconds if peak else None),
        startup_seconds=_rounded(startup_seconds),
        setup_seconds=_rounded(measurement.setup_seconds),
        precision_error=_rounded(measurement.precision_error),
        precision_proof=measurement.precision_proof,
        loss_scale=measurement.loss_scale,
        skipped_steps=measurement.skipped_steps,
        nonfinite_losses=measurement.nonfinite_losses,
        peak_memory_bytes=measurement.peak_memory_bytes,
        allocator_retries=measurement.allocator_retries if device.kind == "cuda" else None,
        **{name: _short(value) for name, value in asdict(measurement.telemetry).items() if name != "marks"},
        accuracy=_rounded(quality.get("accuracy")),
        success_rate=_rounded(quality.get("success_rate")),
        loss=_rounded(quality.get("loss")),
        top5=_rounded(quality.get("top5")),
        perplexity=_rounded(quality.get("perplexity")),
        test_perplexity=_rounded(quality.get("test_perplexity")),
        backend=measurement.backend,
        interconnect=measurement.interconnect,
        rank_spread=_rounded(measurement.rank_spread),
        straggler=measurement.straggler,
        communication_share=_rounded(measurement.communication_share),
        laps=json.dumps(
            [_lap_list(lap) for lap in measurement.laps],
            separators=(",", ":"),
        )
        if measurement.laps
        else "",
        table=_table(measurement.table),
    )


def _table(lines: Sequence[Mapping[str, str | int | float]]) -> str:
    """Column names first, then the lines."""
    if not lines:
        return ""
    values = [[_rounded(v) if isinstance(v, float) else v for v in line.values()] for line in lines]
    return json.dumps([list(lines[0]), *values], separators=(",", ":"))


def _lap_list(lap: Lap) -> list[str | int | float]:
    seconds, wait = round(lap.seconds, 6), round(lap.wait_seconds, 6)
    return [lap.phase, lap.epoch, lap.kind, lap.steps, lap.samples, seconds, wait]


def _short(value: Any) -> Any:
    return _rounded(value) if isinstance(value, float) else value


def _rounded(value: float | None) -> float | None:
    """Six significant digits: finer than any clock here, and short in the file. Not a number is no figure."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


class Earlier:
    """What the file of an earlier run already holds, on the terms that resuming has."""

    def __init__(self, path: Path) -> None:
        loaded = load([path])
        self.path = path
        self.problems = loaded.problems
        self.frame: pd.DataFrame = loaded.frame

    def session_of(self, case: Case) -> str | None:
        """The session that the case's trials belong to; None where they begin a new one.

        Trials of one session ran in turn. A case that joins when others are past their first round did not.
        """
        own = self._rows_of(case)
        if own.empty and self.frame["trial"].max() > 0:
            return None
        rows = self.frame if own.empty else own
        return None if rows.empty else str(rows["session"].iloc[-1])

    def check(
        self,
        cases: Sequence[Case],
        options: Options,
        devices: Mapping[str, Device],
        cards: Mapping[str, CardState],
        environment: Environment,
    ) -> None:
        """Raise UserError naming every key in which the file's rows differ from what would be run now."""
        for case in cases:
            old = self.frame[(self.frame["suite"] == case.suite) & (self.frame["device"] == case.device)]
            if old.empty:
                continue
            now = case_terms(case, devices[case.device], cards[case.device], environment)
            same = old[(old["model"] == case.model) & (old["precision"] == case.precision)]
            # Models of one run may differ in these: each has weights of its own, a rung's recipe, a bound on its rate.
            rows = {key: same if key in ("params", "weights") else old for key in now}
            differing = [key for key, value in now.items() if _differs(rows[key][key], value)]
            # A twin at fp32's batch comes and goes with what the search finds.
            policies = set(same["batch_policy"].replace("max-fp32", "max"))
            if not same.empty and case.batch_policy.replace("max-fp32", "max") not in policies:
                differing.append("batch_policy")
            elif case.batch_policy == "fixed" and _differs(same["batch_size"], case.batch_size):
                differing.append("batch_size")
            if _differs(old["seed"] - old["trial"], options.seed):
                differing.append("seed")
            if _differs(old["until"], options.until):
                differing.append("until")
            if differing:
                raise UserError(
                    f"--out {self.path} holds a run that differs in {', '.join(sorted(differing))};"
                    " give another --out, or the same options as then"
                )

    def batch_of(self, case: Case) -> pd.Series | None:
        """The row whose batch a search found for this case earlier."""
        rows = self._rows_of(case)
        rows = rows[rows["batch_size"].notna()]
        return None if rows.empty else rows.iloc[0]

    def has(self, trial: Trial) -> bool:
        """Whether this trial is there and finished."""
        rows = self._rows_of(trial.case)
        rows = rows[rows["trial"] == trial.index]
        return bool(rows["status"].isin(FINISHED).any())

    def statuses_of(self, case: Case) -> list[str]:
        """How its finished trials ended."""
        statuses = self._rows_of(case)["status"]
        return [str(status) for status in statuses[statuses.isin(FINISHED)]]

    def seconds_of(self, case: Case) -> list[float]:
        """The times of its ok trials."""
        rows = self._rows_of(case)
        return [float(value) for value in rows.loc[rows["status"] == "ok", "seconds"].dropna()]

    @property
    def rounds(self) -> int:
        """How many rounds were begun."""
        last = self.frame["trial"].max()
        return 0 if pd.isna(last) else int(last) + 1

    def _rows_of(self, case: Case) -> pd.DataFrame:
        frame = self.frame
        return frame[
            (frame["suite"] == case.suite)
            & (frame["model"] == case.model)
            & (frame["precision"] == case.precision)
            & (frame["batch_policy"] == case.batch_policy)
            & (frame["device"] == case.device)
            & (frame["processes"] == case.all_processes)
            & (frame["nodes"] == case.nodes)
        ]


def case_terms(case: Case, device: Device, card: CardState, environment: Environment) -> dict[str, object]:
    """Card, stack, suite version and options: what must agree for trials to be pooled in one session."""
    return {
        "card": device.card,
        "device_hash": device.device_hash,
        "driver": device.driver,
        "power_limit_watts": card.power_limit_watts,
        "torch": environment.torch,
        "torchvision": environment.torchvision,
        "fastai": environment.fastai,
        "cuda": environment.cuda,
        "cudnn": environment.cudnn,
        "python": environment.python,
        "cpu": environment.cpu,
        "cpu_count": environment.cpu_count,
        "gpubench": environment.gpubench,
        "suite_version": case.suite_version,
        "suite_digest": case.suite_digest,
        "params": params_text(case.params),
        "mode": case.mode,
        "data": case.data,
        "weights": case.weights,
        "memory_limit_bytes": case.memory_limit_bytes,
    }


def terms_of(cases: Sequence[Case], devices: Sequence[Device], environment: Environment) -> dict[str, object]:
    """What must be the same on every machine of one run."""
    stack = ("torch", "torchvision", "fastai", "cuda", "cudnn", "gpubench")
    terms: dict[str, object] = {name: getattr(environment, name) for name in stack}
    terms["card"] = ", ".join(device.card for device in devices)
    terms["processes"] = ", ".join(str(count) for count in sorted({case.all_processes for case in cases}))
    for case in cases:
        terms[f"suite {case.suite}"] = case.suite_digest[:12]
        terms[f"data of {case.suite}"] = case.data
        terms[f"weights of {case.model}"] = case.weights
    return terms


def _differs(column: "pd.Series[Any]", value: object) -> bool:
    if value is None or value == "":
        return bool((column.notna() & (column.astype(str) != "")).any())
    return bool((column.isna() | (column != value)).any())
