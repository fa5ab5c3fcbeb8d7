"""A child may answer, raise, crash, hang, be killed or outlive its parent: each end is told apart."""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from gpubench.runner import process
from gpubench.runner.process import Outcome, run_child
from gpubench.suite import files
from gpubench.suite.trial import Case, Trial, measurement_from_json

STEP = """
    for epoch in clock.epochs(1):
        for batch in clock.steps([[0]], "train"):
            pass
"""


def task(tmp_path: Path, body: str) -> dict[str, object]:
    """A trial of a one-off suite whose train function has this body, and takes a step if that does not."""
    path = tmp_path / "odd.py"
    source = f'''
"""An odd suite."""
from gpubench.suite.suite import Suite


def train(trial, clock):
{textwrap.indent(textwrap.dedent(body), "    ")}
{"" if "clock" in body else STEP}
    return {{}}


SUITE = Suite(train=train, models=("m",), params={{}}, version=1, torch=False)
'''
    path.write_text(source)
    case = Case(
        suite="odd", suite_version=1, suite_digest=files.load(path).digest, suite_path=str(path),
        model="m", precision="fp32", device="cpu", params={}, batch_policy="fixed", batch_size=4,
        mode="quick", data="",
    )  # fmt: skip
    return {"task": "trial", "trial": asdict(Trial(case, 0, 1))}


def measured(outcome: Outcome):
    assert outcome.answer is not None, outcome
    return measurement_from_json(outcome.answer["measurement"])


def test_output_is_the_users_to_its_last_line_and_the_answer_has_a_channel_of_any_size(tmp_path):
    lines: list[str] = []
    outcome = run_child(task(tmp_path, 'print("{\\"event\\": \\"answer\\"}")'), on_output=lines.append)
    assert measured(outcome).status == "ok"
    assert lines == ['{"event": "answer"}']
    outcome = run_child(task(tmp_path, "import os; os.write(1, b'fatal: no disk'); os._exit(3)"))
    assert outcome.exit_code == 3
    assert "fatal: no disk" in outcome.tail
    outcome = run_child({**task(tmp_path, ""), "padding": "x" * 2**22})
    assert measured(outcome).status == "ok"


@pytest.mark.parametrize(("body", "words"), [
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL (out of memory"),
    ("import os; os.kill(os.getpid(), 40)", "the process was ended by signal 40"),  # a real-time signal
    ("import os; os._exit(3)", "exit code 3"),
])  # fmt: skip
def test_a_death_without_an_answer_has_a_reason(tmp_path, body, words):
    outcome = run_child(task(tmp_path, body))
    assert outcome.end == "died"
    assert words in outcome.reason


STARTS_ANOTHER = """
import subprocess, time
other = subprocess.Popen(["sleep", "600"])
open({pids!r}, "w").write(str(other.pid))
time.sleep(600)
"""


def skip_an_hour_once_written(path, monkeypatch):
    """From now on the clock is an hour ahead once a child has written this file, however long that takes."""
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 3600 * (path.exists() and path.stat().st_size > 0))


def test_the_time_limit_kills_the_whole_group(tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    skip_an_hour_once_written(pids, monkeypatch)
    outcome = run_child(task(tmp_path, STARTS_ANOTHER.format(pids=str(pids))), time_limit_seconds=1800)
    assert outcome.end == "timed_out"
    assert "time limit" in outcome.reason
    assert gone(int(pids.read_text()))


def wait_for(path: Path, seconds: float = 300) -> None:
    """Wait until a child has written this file."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)


def started_trial(tmp_path):
    """A process that runs a trial, and the process id of its child."""
    job = tmp_path / "task.json"
    pids = tmp_path / "pids"
    body = f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    job.write_text(json.dumps(task(tmp_path, body)))
    script = f"""
import json
from gpubench.runner.process import run_child
run_child(json.load(open({str(job)!r})))
"""
    parent = subprocess.Popen([sys.executable, "-c", script])
    wait_for(pids)
    return parent, int(pids.read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="reads the process table of Linux")
def test_no_child_outlives_a_killed_parent(tmp_path):
    parent, child = started_trial(tmp_path)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert gone(child)


def test_the_parent_waits_for_a_child_in_a_blocking_select_with_a_timeout(tmp_path, monkeypatch):
    """So that waiting takes no CPU time, however long the child is silent."""
    waits, select = [], selectors.DefaultSelector.select

    def watching(selector, timeout=None):
        waits.append(timeout)
        return select(selector, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", watching)
    assert measured(run_child(task(tmp_path, "import time; time.sleep(1)"))).status == "ok"
    assert set(waits) == {process.WAKE_SECONDS}
    assert process.WAKE_SECONDS >= 0.05


STEPS = """
import time
for _ in clock.epochs(1):
    for _ in clock.steps([range(4)] * 400, phase="train"):
        time.sleep(0.02)
"""


@pytest.mark.e2e
def test_the_parent_is_woken_with_the_childs_id_and_shares_its_clock_and_what_it_says_reaches_the_child(tmp_path):
    woken = []

    def on_wake(pid):
        woken.append(pid)
        return {"settled": True} if len(woken) > 8 else None

    asked = task(tmp_path, STEPS)
    asked["trial"]["case"]["mode"] = "sampled"
    before = time.monotonic()
    answer = measured(run_child({**asked, "watched": True}, on_wake=on_wake))
    assert "temperature" not in answer.steady, "the card has settled, as the child was told"
    assert len(woken) > 8
    assert len(set(woken)) == 1
    assert before < answer.laps[0].started < answer.laps[-1].started < time.monotonic()


def test_an_interrupt_kills_the_child(tmp_path):
    pids = tmp_path / "pids"
    body = f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    asked = task(tmp_path, body)

    def interrupt() -> None:
        wait_for(pids)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_child(asked)
    thread.join()
    assert gone(int(pids.read_text()))


def gone(pid: int) -> bool:
    """Whether the process ends within two minutes, which a busy machine may need."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_a_child_that_serves_is_asked_over_a_socket_that_is_closed_with_it(monkeypatch):
    """Its socket, its voice and what it must not outlive: of none of them is a descriptor left."""
    ours, theirs = socket.socketpair()
    watched, lifeline = os.pipe()
    held, child, ended = os.fdopen(lifeline, "wb"), object(), []
    monkeypatch.setattr(process, "start_fresh", lambda output: process.Started(child, ours, held))
    monkeypatch.setattr(process, "_kill_group", ended.append)
    with theirs, os.fdopen(watched, "rb"):
        heard = theirs.makefile("rb")
        with contextlib.closing(process.ServingChild({"task": "meet"})) as serving:
            assert heard.readline() == b'{"task": "meet"}\n'
            theirs.sendall(b'{"ready": true}\n[7]\n')
            assert serving.hear(5) == {"ready": True}
            assert serving.ask({"question": 1}, 5) == [7]
            assert heard.readline() == b'{"question": 1}\n'
            assert serving.ask({"question": 2}, 0.01) is None
        assert (ours.fileno(), held.closed, ended) == (-1, True, [child])
        heard.close()


def test_a_lap_that_divides_by_nothing_costs_one_trial(tmp_path):
    def on_event(event):
        raise ZeroDivisionError

    body = """
    for epoch in clock.epochs(1):
        for batch in clock.steps([[0]] * 4, "train"):
            pass
    import time; time.sleep(600)
    """
    outcome = run_child(task(tmp_path, body), on_event=on_event)
    assert outcome.end == "garbled"
