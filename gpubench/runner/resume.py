"""Reads the rows of an earlier run: whether a run may resume it, and which trials are done."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gpubench.errors import UserError
from gpubench.hardware.environment import Device, Environment
from gpubench.hardware.state import CardState
from gpubench.rows.alike import RESUMED, SOFTWARE
from gpubench.rows.params import params_text
from gpubench.rows.read import load
from gpubench.runner.options import Options
from gpubench.runner.record import copied
from gpubench.suite.trial import FINISHED, Case, Trial


class EarlierRun:
    """The rows of an earlier run in the file of this run; none if there is no such file."""

    def __init__(self, path: Path) -> None:
        loaded = load([path] if path.exists() and path.stat().st_size else [])
        self.path = path
        self.problems = loaded.problems
        self.frame: pd.DataFrame = loaded.frame

    def session_of(self, case: Case) -> str | None:
        """Return the session of the case's trials; None if they begin a new one.

        Trials of one session alternate, so a new case starts a new session if other cases are past the first round.
        """
        rows = self._rows_of(case)
        if rows.empty and self.frame["trial"].max() > 0:
            return None
        rows = self.frame if rows.empty else rows
        return None if rows.empty else str(rows["session"].iloc[-1])

    def check(
        self,
        cases: Sequence[Case],
        options: Options,
        devices: Mapping[str, Device],
        cards: Mapping[str, CardState],
        environment: Environment,
    ) -> None:
        """Raise UserError if the file's rows differ from this run; the message names the columns."""
        for case in cases:
            old = self.frame[(self.frame["suite"] == case.suite) & (self.frame["device"] == case.device)]
            if old.empty:
                continue
            now = case_terms(case, devices[case.device], cards[case.device], environment)
            same = old[(old["model"] == case.model) & (old["precision"] == case.precision)]
            # Models of one run may differ in parameters, weights and memory limit.
            before = {key: (same if key in ("params", "weights", "memory_limit_bytes") else old)[key] for key in now}
            # The failed trials of a lost card have neither.
            for name in ("power_limit_watts", "clocks_policy"):
                cells = before[name]
                before[name] = cells[(cells.notna() & (cells != "")) | old["status"].isin(FINISHED)]
            before |= {"seed": old["seed"] - old["trial"], "until": old["until"], "session": old["session"]}
            now |= {"seed": options.seed, "until": options.until}
            now |= {"session": options.session} if options.session else {}
            differing = [key for key, value in now.items() if _differs(before[key], value)]
            # A twin at the batch of fp32 exists only if the search finds different batches.
            policies = set(same["batch_policy"].replace("max-fp32", "max"))
            if not same.empty and case.batch_policy.replace("max-fp32", "max") not in policies:
                differing.append("batch_policy")
            elif case.batch_policy == "fixed" and _differs(same["batch_size"], case.batch_size):
                differing.append("batch_size")
            if differing:
                raise UserError(
                    f"--out {self.path} has rows of a run that differs in {', '.join(sorted(differing))};"
                    " give another --out, or the options of that run"
                )

    def batch_of(self, case: Case) -> pd.Series | None:
        """Return the last row with a batch that an earlier search found for this case, or None.

        Rows of finished trials are preferred: the batch of an unfinished trial may not fit.
        """
        rows = self._rows_of(case)
        rows = rows[rows["batch_size"].notna()]
        finished = rows[rows["status"].isin(FINISHED)]
        return None if rows.empty else (rows if finished.empty else finished).iloc[-1]

    def has(self, trial: Trial) -> bool:
        """Return whether this trial is finished."""
        rows = self._rows_of(trial.case)
        return bool((rows["status"].isin(FINISHED) & (rows["trial"] == trial.index)).any())

    def statuses_of(self, case: Case) -> list[str]:
        """Return the statuses of the case's finished trials."""
        statuses = self._rows_of(case)["status"]
        return [str(status) for status in statuses[statuses.isin(FINISHED)]]

    def seconds_of(self, case: Case) -> list[float]:
        """Return the seconds of the case's ok trials."""
        rows = self._rows_of(case)
        return [float(value) for value in rows.loc[rows["status"] == "ok", "seconds"].dropna()]

    @property
    def rounds(self) -> int:
        """Number of rounds that were started."""
        last = self.frame["trial"].max()
        return 0 if pd.isna(last) else int(last) + 1

    def _rows_of(self, case: Case) -> pd.DataFrame:
        rows = self.frame[self.frame["params"] == params_text(case.params)]
        for column in ("suite", "model", "precision", "batch_policy", "device", "processes", "nodes"):
            rows = rows[rows[column] == getattr(case, column)]
        return rows


def case_terms(case: Case, device: Device, card: CardState, environment: Environment) -> dict[str, object]:
    """Return what must agree for trials of one session: card, software, suite version and options."""
    sources = {"case": case, "device": device, "card": card, "environment": environment}
    return {**copied(RESUMED, sources), "params": params_text(case.params)}


def terms_of(cases: Sequence[Case], devices: Sequence[Device], environment: Environment) -> dict[str, object]:
    """Return what must agree on all machines of a run."""
    terms: dict[str, object] = {name: getattr(environment, name) for name in (*SOFTWARE, "gpubench")}
    terms["card"] = ", ".join(device.card for device in devices)
    terms["processes"] = ", ".join(str(count) for count in sorted({case.processes for case in cases}))
    for case in cases:
        terms[f"suite {case.suite}"] = case.suite_digest[:12]
        terms[f"data of {case.suite}"] = case.data
        terms[f"weights of {case.model}"] = case.weights
    return terms


def _differs(column: "pd.Series[Any]", value: object) -> bool:
    if value is None or value == "":
        return bool((column.notna() & (column.astype(str) != "")).any())
    return bool((column.isna() | (column != value)).any())
