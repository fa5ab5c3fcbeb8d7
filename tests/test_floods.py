"""Suites that flood, lie or hang cost one failed row each; the run goes on, and its own memory stays small."""

import csv
import subprocess
import sys

import pytest

SUITE = '''
"""Floods, lies and hangs."""

import json, os, signal, subprocess, sys, time

from gpubench import Suite


def channel():
    links = {fd: f"/proc/self/fd/{fd}" for fd in range(3, 64)}
    sockets = [fd for fd, link in links.items() if os.path.islink(link) and os.readlink(link).startswith("socket")]
    return sockets[0]


def repeat(write):
    while True:
        write()


def tell(content):
    """Write to the descriptor of the worker's own messages."""
    while content:
        content = content[os.write(channel(), content):]
    time.sleep(600)


def answer(**measurement):
    tell(json.dumps({"event": "answer", "measurement": measurement}).encode() + b"\\n")


def hoard():
    held = []
    repeat(lambda: (held.append(bytearray(b"x") * 10_000_000), os.write(1, b"x" * 65536)))


def ignore_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(600)


BAD = {
    "no end of line": lambda: repeat(lambda: os.write(1, b"x" * 65536)),
    "a flood and an exit": lambda: (os.write(1, b"x" * 10**7), os._exit(3)),
    "a child that floods": lambda: (subprocess.Popen(["yes"], start_new_session=True), time.sleep(600)),
    "a hoard": hoard,
    "no JSON": lambda: tell(b"hello\\n"),
    "half a message": lambda: tell(b'{"event": \\n'),
    "deep": lambda: tell(b"[" * 100_000 + b"\\n"),
    "a line without end": lambda: tell(b"x" * (80 << 20)),
    "laps without end": lambda: repeat(lambda: os.write(channel(), b'{"event": "lap", "fraction": 0.5}\\n' * 99)),
    "a lap of text": lambda: tell(b'{"event": "lap", "fraction": "half", "rate": []}\\n'),
    "an empty answer": lambda: tell(b'{"event": "answer"}\\n'),
    "an answer that is a list": lambda: tell(b'{"event": "answer", "measurement": [1]}\\n'),
    "seconds of text": lambda: answer(status="ok", seconds="long"),
    "a number that is too large": lambda: answer(status="ok", seconds=10**400),
    "a closed channel": lambda: (os.close(channel()), time.sleep(600)),
    "an exit": lambda: os._exit(0),
    "ignored signals": ignore_signals,
    "a stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


def train(trial, clock):
    if trial.case.model in BAD:
        BAD[trial.case.model]()
    for _ in clock.epochs(1):
        for _ in clock.steps([range(4)] * 5, "train"):
            pass
    return {}


SUITE = Suite(train=train, models=(*BAD, "good"), params={}, version=1, torch=False)
'''
RUN = """
import sys
from pathlib import Path
from gpubench.cli.app import app
try:
    app(["run", "--suite", "bad.py", "--models", sys.argv[1], "--device", "cpu", "--precision", "fp32", "--quick",
         "--time-limit", "6s", "--memory-limit", "500MiB", "--out", "bad.csv"])
finally:
    # Not getrusage: that peak includes the process that started this one.
    print("KiB", Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
NAMES = [line.split('"')[1] for line in SUITE.splitlines() if line.startswith('    "') and '": ' in line]


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="finds descriptors in /proc")
def test_a_suite_that_floods_lies_or_hangs_is_one_failed_row_and_the_run_goes_on(tmp_path):
    assert len(NAMES) == 18
    (tmp_path / "bad.py").write_text(SUITE)
    command = [sys.executable, "-c", RUN, ",".join([*NAMES, "good"])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr[-2000:]
    with (tmp_path / "bad.csv").open(newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    assert set(rows) == {*NAMES, "good"}
    assert rows.pop("good")["status"] in {"ok", "timed_out"}  # a busy machine may not train it within its six seconds
    ends = {"failed", "timed_out", "out_of_memory"}
    assert [name for name, row in rows.items() if row["status"] not in ends or not row["reason"]] == []
    assert int(done.stdout.split()[-1]) < 300 * 1024
    assert len(done.stderr) < 100_000_000


@pytest.mark.e2e
@pytest.mark.parametrize("source", ["import os\nos._exit(0)", "while True:\n    print('x' * 80)"])
def test_an_import_that_does_not_come_back_is_a_usage_error(cli_process, tmp_path, source):
    (tmp_path / "bad.py").write_text(source)
    done = cli_process("run", "--suite", "bad.py", "--device", "cpu", "--time-limit", "6s")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "bad.py: the import failed" in line


@pytest.mark.e2e
@pytest.mark.parametrize(("limit", "words"), [("-n 12", "12 files"), ("-v 300000", "293 MiB")])
def test_limits_of_the_shell_that_are_too_low_are_named(tmp_path, limit, words):
    command = f"ulimit {limit}; {sys.executable} -m gpubench run --suite wordlm --device cpu --synthetic --quick"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
