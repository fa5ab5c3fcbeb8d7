"""Reads from the rows of an earlier run what a resumed one may skip, and whether it may go on."""

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
            rows = {key: (same if key in ("params", "weights") else old)[key] for key in now}
            differing = [key for key, value in now.items() if _differs(rows[key], value)]
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
            if options.session and _differs(old["session"], options.session):
                differing.append("session")
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
            & (frame["processes"] == case.processes)
            & (frame["nodes"] == case.nodes)
            & (frame["params"] == params_text(case.params))
        ]


def case_terms(case: Case, device: Device, card: CardState, environment: Environment) -> dict[str, object]:
    """Card, stack, suite version and options: what must agree for trials to be pooled in one session."""
    sources = {"case": case, "device": device, "card": card, "environment": environment}
    return {**copied(RESUMED, sources), "params": params_text(case.params)}


def terms_of(cases: Sequence[Case], devices: Sequence[Device], environment: Environment) -> dict[str, object]:
    """What must be the same on every machine of one run."""
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
