"""Runs a benchmark on several machines (--nodes): node 0 leads and writes the rows, the others run its tasks."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from gpubench.errors import UserError
from gpubench.hardware.interconnect import address_towards
from gpubench.printed import Say
from gpubench.runner.measure import Measure
from gpubench.runner.process import Message, Outcome, RunChild, ServingChild
from gpubench.runner.progress import TrialProgress
from gpubench.runner.session import RunSummary, Session
from gpubench.runner.signals import INTERRUPTED
from gpubench.suite.trial import Measurement, trial_from_json

MEET_SECONDS = 300.0
"""If there is no --time-limit: how long a machine waits for the others to start the same command."""
PATIENCE_SECONDS = 60.0
"""If the child that connects to the others sends nothing for this long, the connection is lost."""
SECRET = "GPUBENCH_SECRET"
"""Environment variable: the secret text that all machines of a run share."""
SECRET_LENGTH = 16
"""Fewest characters of a secret: a short one could be guessed."""
ON_EVERY_NODE = {"trial", "soak"}
"""Tasks of node 0 that run on all machines; its other tasks run on node 0 only."""


class NodeLost(Exception):
    """The connection to another machine is lost; the message says which."""


def parse_rendezvous(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; raises UserError."""
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
        raise UserError(f"--rendezvous {text}: write it as HOST:PORT, with an address that every machine can reach")
    return host.strip("[]"), int(port)


def secret_of_run() -> str:
    """Return the secret that the user set on each machine; raises UserError if it is missing or too short."""
    secret = os.environ.get(SECRET, "")
    if len(secret) < SECRET_LENGTH:
        problem = f"is shorter than {SECRET_LENGTH} characters" if secret else "is not set"
        raise UserError(
            f"--nodes: the environment variable {SECRET} {problem}. Run `openssl rand -hex 16` once, and"
            f" `export {SECRET}=...` with its output on every machine"
        )
    return secret


class Nodes:
    """A context manager that connects this machine to the others of its run. All have started the same command.

    The machine with the address HOST of `rendezvous` (`HOST:PORT`) is node 0. `terms` have to be equal on all machines.
    `limit_seconds` is the longest wait for the others; None: MEET_SECONDS. Raises UserError.
    """

    def __init__(self, nodes: int, rendezvous: str, terms: Mapping[str, Any], limit_seconds: float | None) -> None:
        self.host, self.port = parse_rendezvous(rendezvous)
        self._limit = limit_seconds or MEET_SECONDS
        try:
            self._address = address_towards(self.host, self.port)
        except OSError as error:
            raise UserError(f"--rendezvous {rendezvous}: there is no route to it ({error})") from None
        self._task = {
            "task": "meet", "host": self.host, "port": self.port, "nodes": nodes, "terms": dict(terms),
            "secret": secret_of_run(), "local": _is_ours(self.host), "limit_seconds": self._limit,
        }  # fmt: skip
        self.node = 0
        self.trouble = ""
        """Why the machines did not connect or lost each other, or empty."""
        self.code, self.text = 4, ""
        """Exit code and last line of node 0."""
        self._run, self._port = "", 0

    def __enter__(self) -> "Nodes":
        self._child = ServingChild(self._task)
        silent = f"{self.host}:{self.port} does not answer as gpubench: does another program use the port?"
        met = self._child.hear(self._limit + PATIENCE_SECONDS) or {"trouble": silent}
        self.trouble, self._run, self._port = met.get("trouble", ""), met.get("run", ""), met.get("port", 0)
        node = met.get("node")
        # A machine that reached no store is node 0 if the rendezvous address is its own.
        self.node = node if node is not None else 0 if self._task["local"] else 1
        return self

    def __exit__(self, *error: object) -> None:
        self._child.close()

    # Node 0

    def begin(self, task: Message) -> dict[str, Any]:
        """Start `task` on all machines; returns what its processes need to connect (`place`). Raises NodeLost."""
        if self.trouble:
            raise NodeLost(self.trouble)
        # No time limit: another machine may still be finishing its last task.
        answer = self._child.ask({"ask": "begin", "task": dict(task)}, None) or {"lost": "the connecting process died"}
        if "number" not in answer:
            self.trouble = answer["lost"]
            raise NodeLost(self.trouble)
        return self.place(answer["number"])

    def end(self, code: int, text: str) -> None:
        """Send exit code and last line of the run to the other machines, at its end."""
        if not self.trouble:
            self._child.ask({"ask": "end", "code": code, "text": text}, PATIENCE_SECONDS)

    # The others

    def tasks(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and content of each task until node 0 ends the run (see `code`, `text`) or is lost."""
        while not self.trouble:
            answer = self._child.ask({"ask": "next"}, PATIENCE_SECONDS) or {"lost": f"no answer from {self.host}"}
            if "lost" in answer:
                self.trouble = answer["lost"]
            elif "task" in answer and "end" in answer["task"]:
                self.code, self.text = answer["task"]["end"], answer["task"]["text"]
                return
            elif "task" in answer:
                yield answer["number"], answer["task"]

    def report(self, measurement: Measurement) -> None:
        """Send this machine's measurement of the task to node 0."""
        self._child.ask({"ask": "report", "measurement": asdict(measurement)}, PATIENCE_SECONDS)

    def place(self, number: int) -> dict[str, Any]:
        """Return what the processes of task `number` need to connect: fields of `process_group.Place`."""
        return {"port": self._port, "run": f"{self._run}-{number}", "node": self.node, "address": self._address}


def _is_ours(host: str) -> bool:
    """Return whether `host` is one of the addresses of this machine."""
    with contextlib.suppress(OSError):
        family, kind, protocol, _, target = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(target)
            return True
    return False


def run_as_one_of(
    nodes: Nodes, session: Session, say: Say, run_child: RunChild, lead: Callable[[RunChild], RunSummary]
) -> RunSummary:
    """Lead the run on node 0, or follow it (see `follow`) elsewhere; returns the summary of the run.

    `lead` runs the trials. Its argument, a RunChild, runs tasks of ON_EVERY_NODE on all machines; raises NodeLost.
    """
    if nodes.node > 0:
        return RunSummary(follow(nodes, session, say, run_child))

    def run_everywhere(task: Message, **limits: Any) -> Outcome:
        place = {"place": nodes.begin(task)} if task["task"] in ON_EVERY_NODE else {}
        return run_child({**task, **place}, **limits)

    code, text = INTERRUPTED, "node 0 was stopped"
    try:
        summary = lead(run_everywhere)
        code = summary.exit_code
        text = f"rows are on node 0 in {session.path}"
    except UserError as error:
        code, text = error.exit_code, str(error)
        raise
    finally:
        nodes.end(code, text)
    return summary


def follow(nodes: Nodes, session: Session, say: Say, run_child: RunChild) -> int:
    """Run this machine's part of each task; returns node 0's exit code, 4 if node 0 is lost, or 130 if stopped here."""
    if not nodes.trouble:
        say(f"node {nodes.node}: following {nodes.host}")
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
    place = nodes.place(number)
    measure = Measure(session, lambda task, **limits: run_child({**task, "place": place}, **limits), TrialProgress())
    nodes.report(measure(trial))
