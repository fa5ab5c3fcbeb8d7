"""Runs the tasks of a child (import, describe, soak, peak, memory, network, trial), and returns their results."""

from collections.abc import Callable

from gpubench.errors import UserError
from gpubench.suite.files import find_all
from gpubench.suite.trial import trial_from_json
from gpubench.worker.run_trial import Message, Send, measure


def answer_to(task: Message, send: Send, settled: Callable[[], bool] = lambda: False) -> Message:
    """Run `task` and return its result; `send` sends progress, `settled` returns whether the card has settled."""
    if task["task"] == "trial":
        trial = trial_from_json(task["trial"])
        # Only a parent that reads the card knows when it has settled.
        return measure(trial, send, settled if task.get("watched") else None)
    if task["task"] == "soak":
        from gpubench.training.device import soak

        soak(task["devices"], task["seconds"])
        return {}
    try:
        return _answer(task)
    except UserError as error:
        return {"reason": str(error)}
    except Exception as error:  # no kernel for this device, out of memory, or an error of the suite's own code
        return {"reason": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}


def _answer(task: Message) -> Message:
    """Run a task whose result may be an error."""
    if task["task"] == "import":
        find_all(task["suites"])
        return {}
    if task["task"] == "describe":
        from gpubench.training.device import describe

        return {"facts": describe()}
    if task["task"] == "peak":
        from gpubench.worker.measure_peak import measure_rates

        return {"rates": measure_rates(task["device"], task["precision"], task["threads"], task["soak_seconds"])}
    if task["task"] == "memory":
        from gpubench.worker.step_memory import step_memory

        return {"steps": step_memory(trial_from_json(task["trial"]), task["limits_bytes"])}
    from gpubench.worker.trace_network import network_of

    return {"network": network_of(trial_from_json(task["trial"]))}
