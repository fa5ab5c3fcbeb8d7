"""Runs on several machines: node 0 leads and writes the rows, the others follow its tasks in a loop."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpubench.errors import UserError
from gpubench.printed import Say
from gpubench.runner.cluster.nodes import Nodes
from gpubench.runner.measure import Measure
from gpubench.runner.process import Message, Outcome, RunChild
from gpubench.runner.progress import TrialProgress
from gpubench.runner.session import RunSummary, Session
from gpubench.runner.signals import INTERRUPTED
from gpubench.suite.trial import trial_from_json

ON_EVERY_NODE = {"trial", "soak"}
"""Tasks of all machines; only node 0 runs the others."""


def run_as_one_of(
    nodes: Nodes, session: Session, say: Say, run_child: RunChild, lead: Callable[[RunChild], RunSummary]
) -> RunSummary:
    """Lead on node 0, follow elsewhere; the exit code is the same on all machines.

    `lead` makes the run; its argument runs a task on every machine.
    """
    if nodes.node > 0:
        return RunSummary(follow(nodes, session, say, run_child))
    code, text = INTERRUPTED, "node 0 was stopped"
    try:
        summary = lead(on_every_node(nodes, run_child))
        code = summary.exit_code
        text = f"rows are on node 0 in {session.path}"
    except UserError as error:
        code, text = error.exit_code, str(error)
        raise
    finally:
        nodes.end(code, text)
    return summary


def on_every_node(nodes: Nodes, run_child: RunChild) -> RunChild:
    """Return a `run_child` that also starts the task on the other machines; it raises NodeLost."""

    def run(task: Message, **limits: Any) -> Outcome:
        if task["task"] not in ON_EVERY_NODE:
            return run_child(task, **limits)
        return run_child({**task, "place": nodes.begin(task)}, **limits)

    return run


def follow(nodes: Nodes, session: Session, say: Say, run_child: RunChild) -> int:
    """Run this machine's part of node 0's tasks; returns the exit code of node 0."""
    say(nodes.trouble or f"node {nodes.node}: following {nodes.host}")
    try:
        for number, task in nodes.tasks():
            if task["task"] == "trial":
                _follow_trial(nodes, number, task, session, say, run_child)
            else:
                run_child(task, time_limit_seconds=task["seconds"] + 120)
    except KeyboardInterrupt:
        say("")
        say(f"stopped: node {nodes.node} has left the run; rows are on node 0")
        return INTERRUPTED
    say(nodes.trouble or nodes.text)
    return nodes.code


def _follow_trial(nodes: Nodes, number: int, task: Message, session: Session, say: Say, run_child: RunChild) -> None:
    trial = trial_from_json(task["trial"])
    path = str(session.suites[trial.case.suite].path)
    trial = replace(trial, case=replace(trial.case, suite_path=path))
    say(f"node {nodes.node}: {trial.case.label}")

    def run_here(task: Message, **limits: Any) -> Outcome:
        return run_child({**task, "place": nodes.place(number)}, **limits)

    nodes.report(Measure(session, run_here, TrialProgress())(trial))
