"""The link between machines: hands out tasks, gathers answers, and tells that a machine is lost."""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from gpubench.errors import UserError
from gpubench.hardware.interconnect import address_towards
from gpubench.runner.process import Message, ServingChild
from gpubench.suite.trial import Measurement

MEET_SECONDS = 300.0
"""How long a machine waits for the others to start the same command."""
PATIENCE_SECONDS = 60.0
"""When the child that talks with the others says nothing for this long, the way to them is lost."""


SECRET = "GPUBENCH_SECRET"
"""Environment variable: a text that all machines of a run must know."""
SECRET_LENGTH = 16
"""The fewest characters of it: a short one could be guessed."""


class NodeLost(Exception):
    """Another machine no longer takes part; the message says which."""


def parse_rendezvous(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; raises UserError."""
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
        raise UserError(f"--rendezvous {text}: write it as HOST:PORT, with an address that every machine can reach")
    return host.strip("[]"), int(port)


def secret_of_run() -> str:
    """Return the secret that the user set on each machine; raises UserError where there is none."""
    secret = os.environ.get(SECRET, "")
    if len(secret) < SECRET_LENGTH:
        problem = f"is shorter than {SECRET_LENGTH} characters" if secret else "is not set"
        raise UserError(
            f"--nodes: the environment variable {SECRET} {problem}. Run `openssl rand -hex 16` once, and"
            f" `export {SECRET}=...` with its output on every machine"
        )
    return secret


class Nodes:
    """A context manager around the run of one of several machines that all were given the same command.

    Args:
        nodes: how many machines.
        rendezvous: `HOST:PORT`; the machine that HOST belongs to is node 0.
        terms: what has to be the same everywhere.
        limit_seconds: how long to wait for the others.
    """

    def __init__(self, nodes: int, rendezvous: str, terms: Mapping[str, Any], limit_seconds: float | None) -> None:
        self.host, self.port = parse_rendezvous(rendezvous)
        self._limit = limit_seconds or MEET_SECONDS
        try:
            self._address = address_towards(self.host, self.port)
        except OSError as error:
            raise UserError(f"--rendezvous {rendezvous}: there is no route to it ({error})") from None
        self._task = {
            "task": "meet",
            "host": self.host,
            "port": self.port,
            "nodes": nodes,
            "terms": dict(terms),
            "secret": secret_of_run(),
            "local": _is_ours(self.host),
            "limit_seconds": self._limit,
        }
        self.node = 0
        self.trouble = ""
        """Why the machines did not come together, or empty."""
        self.code, self.text = 4, ""
        """How node 0 said it ended."""
        self._run, self._port = "", 0

    def __enter__(self) -> "Nodes":
        self._child = ServingChild(self._task)
        met = self._child.hear(self._limit + PATIENCE_SECONDS)
        if met is None:
            met = {
                "trouble": f"{self.host}:{self.port} does not answer as gpubench does: is the port another program's?"
            }
        self.trouble, self._run = met.get("trouble", ""), met.get("run", "")
        self._port = met.get("port", 0)
        node = met.get("node")
        # Whoever never reached the store leads if the place was its own to open.
        self.node = node if node is not None else 0 if self._task["local"] else 1
        return self

    def __exit__(self, *error: object) -> None:
        self._child.__exit__()

    # Node 0

    def begin(self, task: Message) -> dict[str, Any]:
        """Have all machines start `task`; returns where its processes meet. Raises NodeLost."""
        if self.trouble:
            raise NodeLost(self.trouble)
        # It waits as long as the others live: one may still be ending its last task.
        said = self._child.ask({"ask": "begin", "task": dict(task)}, None) or {"lost": "the meeting's child died"}
        if "number" not in said:
            self.trouble = said["lost"]
            raise NodeLost(self.trouble)
        return self.place(said["number"])

    def end(self, code: int, text: str) -> None:
        """Tell the others how the run ended."""
        if not self.trouble:
            self._child.ask({"ask": "end", "code": code, "text": text}, PATIENCE_SECONDS)

    # The others

    def tasks(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number and task, one after the other, until node 0 ends the run or is lost: see `code`, `text`."""
        while not self.trouble:
            said = self._child.ask({"ask": "next"}, PATIENCE_SECONDS) or {"lost": f"nothing was heard of {self.host}"}
            if "lost" in said:
                self.trouble = said["lost"]
            elif "task" in said and "end" in said["task"]:
                self.code, self.text = said["task"]["end"], said["task"]["text"]
                return
            elif "task" in said:
                yield said["number"], said["task"]

    def report(self, measurement: Measurement) -> None:
        """Tell node 0 what this machine saw of the task's end."""
        self._child.ask({"ask": "report", "measurement": asdict(measurement)}, PATIENCE_SECONDS)

    def place(self, number: int) -> dict[str, Any]:
        """Where the processes of task `number` meet."""
        return {
            "port": self._port,
            "run": f"{self._run}-{number}",
            "node": self.node,
            "address": self._address,
        }


def _is_ours(host: str) -> bool:
    """Whether `host` is an address of this machine."""
    with contextlib.suppress(OSError):
        family, kind, protocol, _, target = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(target)
            return True
    return False
