"""A run over two machines: two commands that meet on this one, or in two network namespaces with a cable between."""

import contextlib
import os
import pickle
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gpubench.errors import UserError
from gpubench.rows.read import load
from gpubench.runner.nodes import SECRET, Nodes, parse_rendezvous
from gpubench.worker.relay import GREETING, NONCE_BYTES

SUITE = Path(__file__).parent / "suites" / "ranks.py"


class Machines:
    """The same command on each of two machines; `prefix` says how to reach one."""

    def __init__(self, folder: Path, host: str, prefixes=((), ())) -> None:
        self.folder, self.prefixes = folder, prefixes
        self.secret = secrets.token_hex(16)
        self.started: list[subprocess.Popen[str]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.where = f"{host}:{free.getsockname()[1]}"

    def start(
        self, node: int, *more: object, suite: Path = SUITE, model: str = "mlp", full: bool = False, secret: str = ""
    ) -> subprocess.Popen[str]:
        command = [
            *self.prefixes[node], sys.executable, "-m", "gpubench", "run", "--suite", str(suite), "--models", model,
            "--device", "cpu", "--precision", "fp32", "--full" if full else "--quick", "--nodes", "2", "--rendezvous",
            self.where, "--out", str(self.out(node)), *map(str, more),
        ]  # fmt: skip
        process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, SECRET: secret or self.secret},
        )
        self.started.append(process)
        return process

    def stop(self) -> None:
        """What a failed test left running."""
        for process in self.started:
            process.kill()
            process.communicate()

    def out(self, node: int) -> Path:
        return self.folder / f"node{node}.csv"

    def rows(self):
        return load([self.out(0)]).frame


@pytest.fixture
def machines(tmp_path, left_over):
    """Two machines that are this one."""
    yield from ended(Machines(tmp_path, "127.0.0.1"), left_over)


def ended(found, left_over):
    """Gives the machines to a test; after it nothing of them runs, whatever became of the test."""
    try:
        yield found
        assert not left_over()
    finally:
        found.stop()


@pytest.fixture
def cabled(tmp_path, left_over):
    """Two network namespaces with a veth pair between them; skips where the kernel allows none."""
    if not shutil.which("ip"):
        pytest.skip("there is no `ip` here (iproute2)")
    names = [f"gb{os.getpid()}{side}" for side in "ab"]
    ends = [f"{name[-7:]}v" for name in names]
    commands = [f"ip netns add {name}" for name in names]
    commands.append(f"ip link add {ends[0]} type veth peer name {ends[1]}")
    for number, (name, end) in enumerate(zip(names, ends, strict=True), start=1):
        commands += [
            f"ip link set {end} netns {name}",
            f"ip -n {name} addr add 10.77.0.{number}/24 dev {end}",
            f"ip -n {name} link set {end} up",
            f"ip -n {name} link set lo up",
        ]
    try:
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
        prefixes = [("ip", "netns", "exec", name) for name in names]
        found = Machines(tmp_path, "10.77.0.1", prefixes)
        found.cut = lambda: subprocess.run(["ip", "-n", names[1], "link", "set", ends[1], "down"], check=True)
        yield from ended(found, left_over)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def end(*processes: subprocess.Popen[str], seconds: float = 600) -> list[tuple[int, str]]:
    """Exit code and stderr of each, which have `seconds` together."""
    deadline = time.monotonic() + seconds
    found = []
    for process in processes:
        _, err = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
        assert "Traceback" not in err, err
        found.append((process.returncode, err))
    return found


@pytest.mark.e2e
@pytest.mark.parametrize("taken", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_machine_that_never_comes_and_a_port_that_is_another_programs(machines, taken):
    with socket.socket() as other:
        if taken:
            other.bind(parse_rendezvous(machines.where))
            other.listen()
        ((code, err),) = end(machines.start(0, "--time-limit", "4s"))
    assert code == 4, err
    row = machines.rows().iloc[0]
    assert row["status"] == "failed"
    assert machines.where in row["reason"]
    assert taken or row["reason"] == f"only 1 of 2 machines came to {machines.where} within 4 s"


@pytest.mark.e2e
def test_machines_that_differ_say_in_what(machines, tmp_path):
    edited = tmp_path / "ranks.py"
    edited.write_text(SUITE.read_text() + "\nEDITED = True\n")
    first = machines.start(0, "--time-limit", "5m")
    second = machines.start(1, "--time-limit", "5m", suite=edited)
    (code, err), (other, other_err) = end(first, second)
    assert (code, other) == (4, 4), err + other_err
    assert "differ in suite ranks" in err + other_err


@pytest.mark.parametrize("text", ["host", "host:", ":29400", "host:0", "host:99999", "host:port", "host:²"])
def test_a_rendezvous_is_a_host_and_a_port(text):
    with pytest.raises(UserError, match="HOST:PORT"):
        parse_rendezvous(text)


@pytest.mark.e2e
def test_strangers_change_nothing(machines, tmp_path):
    """A pickle, silence and a wrong secret at the open port: refused, and the machines still meet and make one row."""
    ran = tmp_path / "ran"
    first = machines.start(0, "--time-limit", "10m")
    where = parse_rendezvous(machines.where)
    bait = pickle.dumps(Bait(f"touch {ran}"))
    silent = connected(where)
    for words in (bait, b"\0" * 200, bait[:5], bytes(64) + bait):
        with connected(where) as stranger:
            stranger.sendall(words)
            if len(words) >= 64:  # as long as a proof, so it is judged at once
                assert only_greeted(stranger)
    impostor = machines.start(1, "--time-limit", "5m", secret=secrets.token_hex(16))
    ((code, err),) = end(impostor)
    assert code == 4, err
    assert SECRET in err
    machines.out(1).unlink()
    (code, err), (other, other_err) = end(first, machines.start(1))
    silent.close()
    assert (code, other) == (0, 0), err + other_err
    assert not machines.out(1).exists(), "only node 0 writes"
    (row,) = machines.rows().itertuples()
    assert row.status == "ok", row.reason
    assert (row.processes, row.nodes) == (2, 2)
    assert not ran.exists()


class Bait:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def connected(where: tuple[str, int], seconds: float = 300) -> socket.socket:
    """A connection to the open port, once it is open."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(where, timeout=30)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def only_greeted(stranger: socket.socket) -> bool:
    """Whether the other end has closed the connection after its greeting and 32 random bytes."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while data := stranger.recv(1000):
            answer += data
    return len(answer) <= len(GREETING) + NONCE_BYTES


@pytest.mark.parametrize("secret", ["", "short"])
def test_without_a_secret_machines_do_not_meet(secret, monkeypatch):
    monkeypatch.setenv(SECRET, secret)
    with pytest.raises(UserError, match=SECRET):
        Nodes(2, "127.0.0.1:29400", {}, None)


# With a cable


@pytest.mark.e2e
def test_two_machines_with_a_cable(cabled):
    (code, err), (other, other_err) = end(cabled.start(0), cabled.start(1))
    assert (code, other) == (0, 0), err + other_err
    row = cabled.rows().iloc[0]
    assert row["status"] == "ok", row["reason"]
    assert row["interconnect"].startswith("network ")
    assert not cabled.out(1).exists()


@pytest.mark.e2e
@pytest.mark.parametrize(
    "what", ["command", *(pytest.param(what, marks=pytest.mark.slow) for what in ("worker", "agent", "both", "link"))]
)
def test_what_happens_to_the_other_machine_is_a_row(cabled, what, known_peaks):
    """One side loses its worker, its agent alone, both, the whole command, or its cable."""
    trial = ("--time-limit", "40s", "--set", "samples=100000")
    first, second = (cabled.start(node, *trial, model="slow", full=True) for node in (0, 1))
    agent, worker = group_of(second)
    if what in {"agent", "both"}:
        agent.send_signal(signal.SIGKILL)
    if what in {"worker", "both"}:
        worker.send_signal(signal.SIGKILL)
    if what == "command":
        for process in psutil.Process(second.pid).children(recursive=True):
            if process.pid not in {agent.pid, worker.pid}:
                process.kill()
        second.kill()
    if what == "link":
        cabled.cut()
    ((code, err),) = end(first)
    assert code == 4, err
    row = cabled.rows().iloc[0]
    assert row["status"] in {"failed", "timed_out"}, row
    assert row["reason"]
    second.communicate(timeout=300)


def group_of(command: subprocess.Popen[str]) -> tuple[psutil.Process, psutil.Process]:
    """Agent and worker of a machine, once the worker trains."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for process in psutil.Process(command.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # the child that asks for the devices ends soon
                if "spawn_main" in " ".join(process.cmdline()) and process.cpu_times().user > 2:
                    time.sleep(2)
                    return process.parent(), process
        time.sleep(0.2)
    raise AssertionError(command.communicate(timeout=1))
