"""Trials of several processes: their rows, and every way in which one of them can spoil it for the others."""

import contextlib
import ipaddress
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from gpubench.rows.read import load
from gpubench.training import process_group
from gpubench.worker import elastic

SUITES = Path(__file__).parent / "suites"
pytestmark = pytest.mark.e2e


ASKED = [
    *("--suite", str(SUITES / "ranks.py"), "--device", "cpu", "--precision", "fp32", "--processes", "2"),
    *("--out", "a.csv"),
]


def started_run(folder):
    """A run of two processes that hang."""
    command = [sys.executable, "-m", "gpubench", "run", *ASKED, "--set", "what=hangs"]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)


@pytest.fixture
def trial(cli_process, tmp_path, left_over):
    """Runs tests/suites/process_group.py with these --set values; returns the rows. No process may be left."""

    def run(*arguments, **settings):
        pairs = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        done = cli_process("run", *ASKED, "--quick", *arguments, *pairs)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.stdout == ""
        assert not left_over()
        return load([tmp_path / "a.csv"]).frame

    return run


def test_the_row_says_how_many_and_how_they_talk(trial):
    row = trial("--time-limit", "120s").iloc[0]
    assert row["status"] == "ok", row["reason"]
    assert (row["processes"], row["nodes"], row["backend"], row["interconnect"]) == (2, 1, "gloo", "loopback")
    assert row["rank_spread"] >= 0
    assert row["communication_share"] < 1
    assert row["samples"] == 2 * 8 * row["samples"] // 16 > 0


def test_every_number_of_processes_has_the_same_threads(trial):
    frame = trial("--processes", "1,2")
    assert list(frame["status"]) == ["ok", "ok"], list(frame["reason"])
    assert set(frame["processes"]) == {1, 2}
    assert frame["threads"].nunique() == 1
    assert frame["params"].nunique() == 1
    assert f"threads={frame['threads'][0]:.0f}" in frame["params"][0]


def test_a_straggler_is_named(trial):
    row = trial(what="slow", who=1).iloc[0]
    assert row["status"] == "ok", row["reason"]
    assert row["straggler"].startswith("rank 1 (node 0): ")
    assert row["rank_spread"] > 1


def test_a_goal_that_all_miss_is_the_groups_row(cli_process, tmp_path, left_over):
    done = cli_process("run", *ASKED, "--full", "--set", "goal=99")
    assert done.returncode == 4, done.stderr
    assert not left_over()
    row = load([tmp_path / "a.csv"]).frame.iloc[0]
    assert row["status"] == "goal_missed"
    assert row["reason"].startswith("loss ")
    assert "the goal is 99" in row["reason"]
    assert row["seconds"] > 0
    assert row["startup_seconds"] > 0


@pytest.mark.parametrize(
    ("what", "status", "words"),
    [
        ("raises", "failed", ["rank 1: ValueError: no good (line"]),
        pytest.param("full", "out_of_memory", ["rank 1: MemoryError"], marks=pytest.mark.slow),
        ("killed", "failed", ["rank 1: ended by SIGKILL"]),
        pytest.param("agent", "failed", ["SIGKILL"], marks=pytest.mark.slow),
        ("hangs", "timed_out", ["rank 0", "waited in vain", "no answer from rank 1"]),
        ("leaves", "", ["rank"]),
    ],
)
def test_what_one_process_does_to_the_others_is_a_row(trial, what, status, words):
    row = trial("--time-limit", "60s", what=what).iloc[0]
    assert row["status"] == status or (not status and row["status"] != "ok"), row["reason"]
    assert all(word in row["reason"] for word in words), row["reason"]


def test_gradients_are_those_of_one_process(cli, cli_process, tmp_path):
    """On the same step of 10 samples, which three processes share unequally."""
    found = {}
    for run, processes, batch in ((cli, 1, 10), (cli_process, 3, 4)):
        to = tmp_path / f"{processes}.pt"
        done = run(
            "run", "--suite", SUITES / "gradients.py", "--device", "cpu", "--precision", "fp32", "--full",
            "--batch", batch, "--processes", processes, "--set", f"to={to}",
            "--out", f"{processes}.csv",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[processes] = torch.load(to, weights_only=True)
    for name, grad in found[1].items():
        torch.testing.assert_close(found[3][name], grad, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("pipeline", ["device", pytest.param("workers", marks=pytest.mark.slow)])
def test_resnet_trains_in_two_processes(cli_process, tmp_path, pipeline):
    done = cli_process(
        "run", "--suite", "resnet", "--models", "resnet18", "--precision", "bf16", "--device", "cpu", "--full",
        "--synthetic", "--batch", 8, "--processes", 2, "--out", "a.csv", "--set", "image_size=32", "--set", "epochs=1",
        "--set", "train_images=65", "--set", "valid_images=33", "--set", "workers=1", "--set", f"pipeline={pipeline}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row = load([tmp_path / "a.csv"]).frame.iloc[0]
    assert row["status"] == "ok", row["reason"]
    assert row["samples"] == 64  # a lone last image cannot be shared by two BatchNorms


def test_no_process_outlives_a_killed_run(tmp_path, left_over):
    parent = started_run(tmp_path)
    deadline = time.monotonic() + 60
    # the parent, the agent, who watches over it, and its two processes
    while len(left_over(0)) < 5 and time.monotonic() < deadline:
        time.sleep(0.2)
    parent.kill()
    parent.wait()
    assert time.monotonic() < deadline
    assert not left_over()


def test_nothing_listens_beyond_loopback(tmp_path, left_over):
    parent = started_run(tmp_path)
    try:
        listening = {}
        # The store's socket, and those of two processes that have joined the group and then hang.
        wait_until(lambda: len(listening) >= 3, lambda: listening.update(listening_sockets(left_over(0))))
        time.sleep(1)
        listening.update(listening_sockets(left_over(0)))
    finally:
        parent.kill()
        parent.wait()
    assert {ipaddress.ip_address(address.ip).is_loopback for address in listening} == {True}, listening
    assert not left_over()


def listening_sockets(processes):
    """Address of each TCP socket that these processes listen on, and the process."""
    sockets = {}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    sockets[connection.laddr] = process.pid
    return sockets


def wait_until(done, look, seconds=60):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        look()
        time.sleep(0.2)


def test_gradients_are_views_of_what_is_sent(monkeypatch):
    made = {}
    monkeypatch.setattr(
        process_group, "DistributedDataParallel", lambda model, **options: made.update(options) or model
    )
    trial = SimpleNamespace(case=SimpleNamespace(processes=2, device="cpu"))
    process_group.distributed(torch.nn.Linear(2, 2), trial, broadcast_buffers=False)
    assert made == {"device_ids": None, "gradient_as_bucket_view": True, "broadcast_buffers": False}


@pytest.mark.parametrize(
    ("device", "nodes", "bound"), [("cuda:0", 2, True), ("cuda:0", 1, False), ("cuda:2", 2, False), ("cpu", 2, False)]
)
def test_processes_are_bound_to_the_cpus_beside_their_cards(device, nodes, bound, monkeypatch):
    pytest.importorskip("torch.numa.binding")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    options = elastic.near_their_cards(device, nodes)
    assert bool(options) == bound
    assert not bound or options["numa_options"].affinity_mode.value == "node"
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert not elastic.near_their_cards(device, nodes), "torch does it with numactl"
