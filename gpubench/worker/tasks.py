"""Runs the tasks of a child (describe, soak, peak, network, trial) and returns their results. Called by __main__."""

from collections.abc import Callable, Sequence

from gpubench.errors import UserError
from gpubench.suite.trial import Trial, trial_from_json
from gpubench.worker.run_trial import Message, Send, clock_for, measure


def answer_to(task: Message, send: Send, settled: Callable[[], bool] = lambda: False) -> Message:
    """Run `task` and return its result; `send` sends progress, `settled` returns whether the card has settled."""
    if task["task"] == "describe":
        return _describe()
    if task["task"] == "soak":
        return _soak(task["devices"], task["seconds"])
    if task["task"] == "peak":
        return _peak(task["device"], task["precision"], task["threads"], task["soak_seconds"])
    trial = trial_from_json(task["trial"])
    if task["task"] == "network":
        return _network(trial)
    # Only a parent that reads the card knows when it has settled.
    return measure(trial, clock_for(trial, send, settled if task.get("watched") else None))


def _describe() -> Message:
    try:
        from gpubench.training.device import describe

        return {"facts": describe()}
    except Exception as error:
        return {"reason": f"{type(error).__name__}: {error}"}


def _soak(devices: Sequence[str], seconds: float) -> Message:
    from gpubench.training.device import soak

    soak(devices, seconds)
    return {}


def _peak(device: str, precision: str, threads: int, soak_seconds: float) -> Message:
    from gpubench.worker.measure_peak import measure_rates

    try:
        return {"rates": measure_rates(device, precision, threads, soak_seconds)}
    except RuntimeError as error:  # no kernel for this device, or out of memory
        return {"reason": str(error).partition("\n")[0]}


def _network(trial: Trial) -> Message:
    from gpubench.worker.trace_network import network_of

    try:
        return {"network": network_of(trial)}
    except UserError as error:
        return {"reason": str(error)}
    except Exception as error:  # of the suite's own code
        return {"reason": f"{type(error).__name__}: {error}"}
