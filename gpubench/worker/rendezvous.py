"""Connects the machines of a run through one torch store on the first machine; the others reach it through `relay`.

Runs in the child process of `nodes.Nodes`, which lasts as long as the run.
"""

import errno
import json
import secrets
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from gpubench.training.process_group import loopback_store, store_at
from gpubench.worker import relay
from gpubench.worker.run_trial import Message, Send

BEAT_SECONDS = 2.0
"""Time between two signs of life of a machine, in seconds."""
SILENCE_SECONDS = 15.0
"""A machine without a sign of life for so many seconds is lost."""
WAIT_SECONDS = 5.0
"""Longest wait of one request for the next task, in seconds."""


def serve(task: Message, requests: Any, send: Send) -> None:
    """Connect to the other machines, then answer the parent's questions until the parent ends."""
    meeting = Meeting(task)
    try:
        meeting.open()
        send({"node": meeting.node, "run": meeting.run, "port": meeting.store_port})
    except (dist.DistError, MeetingError) as error:
        send({"trouble": " ".join(str(error).split())[:300], "node": meeting.node})
        return
    for line in requests:
        try:
            send(meeting.answer(json.loads(line)))
        except dist.DistError as error:
            send({"lost": f"the machine at {meeting.where} no longer answers ({str(error).partition('.')[0][:120]})"})


class MeetingError(Exception):
    """The machines cannot run together; the message says why."""


class Meeting:
    """The connection of one machine to the others."""

    def __init__(self, task: Message) -> None:
        self.host, self.port, self.nodes = str(task["host"]), int(task["port"]), int(task["nodes"])
        self.where = f"{self.host}:{self.port}"
        self._secret, self._terms, self._local = str(task["secret"]).encode(), task["terms"], bool(task["local"])
        self._limit = float(task["limit_seconds"])
        self.store_port = 0
        """Port on this machine's loopback address that leads to the store."""
        self.node: int | None = None
        """Number of this machine; 0 opened the store, chooses the trials, and writes the rows."""
        self.run = ""
        self._number = 0

    def open(self) -> None:
        """Open the store or connect to it; raises MeetingError unless all machines come and have the same terms."""
        self._store = self._first_store() if self._local else self._connect()
        if self.node is None:
            self.node = self._store.add("nodes", 1) - 1
        if self.node >= self.nodes:
            raise MeetingError(f"{self.nodes} machines are at {self.where} already; this one is one too many")
        self._store.set(f"terms/{self.node}", json.dumps(self._terms))
        if self.node == 0:
            trouble = self._missing() or self._difference()
            self.run = secrets.token_hex(16)
            self._store.set("verdict", json.dumps({"trouble": trouble, "run": self.run}))
            time.sleep(BEAT_SECONDS * bool(trouble))  # the store ends with this process: first let the others read it
        else:
            threading.Thread(target=self._beat, daemon=True).start()
            self._store.wait(["verdict"], timedelta(seconds=self._limit + WAIT_SECONDS))
            verdict = json.loads(self._store.get("verdict"))
            trouble, self.run = verdict["trouble"], verdict["run"]
        if trouble:
            raise MeetingError(trouble)

    def answer(self, question: Message) -> Message:
        """Return the answer to one question of the parent."""
        ask = question["ask"]
        if ask == "begin":
            self._post(question["task"])
            lost = " and ".join(f"node {node}" for node in self._acknowledged(None))
            return {"lost": f"{lost} no longer answers at {self.where}"} if lost else {"number": self._number}
        if ask == "end":
            self._post({"end": question["code"], "text": question["text"]})
            self._acknowledged(WAIT_SECONDS)
            return {}
        if ask == "report":
            dist.PrefixStore(f"{self.run}-{self._number}", self._store).set(
                f"report/{self.node}", json.dumps({"at": time.time(), "measurement": question["measurement"]})
            )
            return {}
        return self._next()

    def _post(self, task: Message) -> None:
        self._number += 1
        self._store.set(f"task/{self._number}", json.dumps(task))

    def _acknowledged(self, limit: float | None) -> list[int]:
        """Wait until every machine has the task, for `limit` seconds if given; return the numbers of lost machines."""
        waiting = {f"ack/{self._number}/{node}": node for node in range(1, self.nodes)}
        began = time.monotonic()
        beats = dict.fromkeys(waiting.values(), (-1, began))
        lost: list[int] = []
        while waiting and (limit is None or time.monotonic() - began < limit):
            for key, node in list(waiting.items()):
                if self._store.check([key]):
                    del waiting[key]
                    continue
                beat = self._store.add(f"beat/{node}", 0)
                if beat != beats[node][0]:
                    beats[node] = (beat, time.monotonic())
                elif time.monotonic() - beats[node][1] > SILENCE_SECONDS:
                    lost.append(node)
                    del waiting[key]
            time.sleep(0.05)
        return lost

    def _next(self) -> Message:
        key = f"task/{self._number + 1}"
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._store.check([key]):
            if time.monotonic() > deadline:
                return {"wait": True}
            time.sleep(0.1)
        task = json.loads(self._store.get(key))
        self._number += 1
        self._store.set(f"ack/{self._number}/{self.node}", "")
        return {"number": self._number, "task": task}

    def _first_store(self) -> dist.TCPStore:
        try:
            family, _, _, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(address[:2], family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise MeetingError(f"{self.where} cannot be opened: {error}") from None
            return self._connect()  # another process of this machine was first
        store = loopback_store(self._limit)
        self.store_port = store.port
        self.node = store.add("nodes", 1) - 1  # before another machine can be the first
        relay.forward_clients(listener, store.port, self._secret)
        return store

    def _connect(self) -> dist.TCPStore:
        try:
            self.store_port = relay.open_forwarder(self.host, self.port, self._secret, self._limit)
        except relay.SecretError:
            why = f"{self.where} has another secret; set GPUBENCH_SECRET to the same text everywhere"
            raise MeetingError(why) from None
        except OSError:
            raise MeetingError(f"nobody opened {self.where} within {self._limit:.0f} s") from None
        return store_at(self.store_port, self._limit)

    def _missing(self) -> str:
        """Wait for the terms of all machines; return in words how many came in time, or an empty text if all did."""
        deadline = time.monotonic() + self._limit
        keys = [f"terms/{node}" for node in range(self.nodes)]
        while not self._store.check(keys):
            if time.monotonic() > deadline:
                connected = sum(self._store.check([key]) for key in keys)
                return f"only {connected} of {self.nodes} machines came to {self.where} within {self._limit:.0f} s"
            time.sleep(0.1)
        return ""

    def _difference(self) -> str:
        """Return in words how the terms of a machine differ from ours, or an empty text."""
        for node in range(1, self.nodes):
            terms = json.loads(self._store.get(f"terms/{node}"))
            pairs = {key: (self._terms.get(key), terms.get(key)) for key in sorted({*self._terms, *terms})}
            if differing := [f"{key} ({value} and {other})" for key, (value, other) in pairs.items() if value != other]:
                text = ", ".join(differing)
                return f"node 0 and node {node} differ in {text}; start the same command on machines that are alike"
        return ""

    def _beat(self) -> None:
        store = store_at(self.store_port, SILENCE_SECONDS)
        while True:
            try:
                store.add(f"beat/{self.node}", 1)
            except dist.DistError:
                return  # the next question to the store fails too
            time.sleep(BEAT_SECONDS)
