"""Trials of several processes: their rows, and every way in which one of them can spoil it for the others."""

import contextlib
import ipaddress
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from conftest import gpubench_in
from inside import store_peaks
from measured_rows import rows_of_run
from small_trials import MIXED

from gpubench.rows.read import load
from gpubench.training import process_group
from gpubench.worker import ranks
from gpubench.worker.failures import failed

SUITES = Path(__file__).parent / "suites"
pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("known_peaks")]
ASKED = ("--suite", SUITES / "ranks.py", "--device", "cpu", "--precision", "fp32", "--processes", 2, "--out", "a.csv")


@pytest.fixture(scope="module")
def frame(tmp_path_factory):
    """The rows by model of one run in which most things that can happen do happen. No process may be left."""
    folder = tmp_path_factory.mktemp("ranks")
    models = "mlp,slow,raises,killed,leaves"
    with pytest.MonkeyPatch.context() as patched:
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
            patched.setenv(name, str(tmp_path_factory.mktemp("home")))
        store_peaks()
        done = gpubench_in(folder, "run", *ASKED, "--full", "--models", models, "--time-limit", "10m")
    assert done.returncode == 4, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()][-2:] == ["rows", "next"], done.stdout
    assert "Traceback" not in done.stderr
    return load([folder / "a.csv"]).frame.set_index("model")


def test_the_row_says_how_many_and_how_they_talk(frame):
    row = frame.loc["mlp"]
    assert row["status"] == "ok", row["reason"]
    assert (row["processes"], row["nodes"], row["backend"], row["interconnect"]) == (2, 1, "gloo", "loopback")
    assert row["rank_spread"] >= 0
    assert row["communication_share"] < 1
    assert row["samples"] == 202
    assert f"threads={row['threads']:.0f}" in row["params"]


def test_two_processes_train_as_one_does_though_they_share_the_last_step_unequally(cli, frame, tmp_path):
    """Of 101 samples in steps of 16 it has 5, of which one process has 3."""
    done = cli("run", *ASKED, "--full", "--models", "mlp", "--processes", 1, "--batch", 16)
    assert done.returncode == 0, done.stderr
    alone = load([tmp_path / "a.csv"]).frame.iloc[0]
    assert (alone["samples"], alone["processes"]) == (202, 1)
    assert frame.loc["mlp"]["loss"] == pytest.approx(alone["loss"], rel=1e-5)


def test_a_straggler_is_named_and_a_goal_that_all_miss_is_the_groups_row(frame):
    row = frame.loc["slow"]
    assert row["straggler"].startswith("rank 1 (node 0): ")
    assert row["rank_spread"] > 1
    assert row["status"] == "goal_missed"
    assert row["reason"].startswith("loss ")
    assert "the goal is 99" in row["reason"]
    assert row["seconds"] > 0
    assert row["startup_seconds"] > 0


@pytest.mark.parametrize(
    ("what", "words"),
    [("raises", ["rank 1: ValueError: no good (line"]), ("killed", ["rank 1: ended by SIGKILL"]), ("leaves", ["rank"])],
)
def test_what_one_process_does_to_the_others_is_a_row(frame, what, words):
    row = frame.loc[what]
    assert row["status"] == "failed" or (what == "leaves" and row["status"] != "ok"), row["reason"]
    assert all(word in row["reason"] for word in words), row["reason"]


@pytest.mark.parametrize(
    ("what", "status", "words"),
    [
        ("hangs", "timed_out", ["rank 0", "waited in vain", "no answer from rank 1"]),
        pytest.param("full", "out_of_memory", ["rank 1: MemoryError"], marks=pytest.mark.slow),
        pytest.param("agent", "failed", ["SIGKILL"], marks=pytest.mark.slow),
    ],
)
def test_no_process_is_left_of_a_group_that_hangs_or_ends(cli_process, tmp_path, left_over, what, status, words):
    done = cli_process("run", *ASKED, "--quick", "--models", what, "--time-limit", "60s")
    assert "Traceback" not in done.stderr, done.stderr
    assert not left_over()
    row = load([tmp_path / "a.csv"]).frame.iloc[0]
    assert row["status"] == status, row["reason"]
    assert all(word in row["reason"] for word in words), row["reason"]


@pytest.mark.parametrize("pipeline", ["device", pytest.param("workers", marks=pytest.mark.slow)])
def test_resnet_trains_in_two_processes(cli_process, tmp_path, pipeline):
    options = ("--models", "resnet18", "--precision", MIXED, "--full", "--synthetic", "--batch", 8, "--processes", 2)
    sizes = {"image_size": 32, "epochs": 1, "train_images": 65, "valid_images": 33, "workers": 1}
    row = rows_of_run(cli_process, tmp_path, "resnet", *options, pipeline=pipeline, **sizes).iloc[0]
    assert row["status"] == "ok", row["reason"]
    assert row["samples"] == 64  # a lone last image cannot be shared by two BatchNorms


def test_a_run_listens_on_loopback_alone_and_no_process_outlives_it(tmp_path, left_over):
    command = [sys.executable, "-m", "gpubench", "run", *map(str, ASKED), "--models", "hangs"]
    parent = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    listening = {}
    deadline = time.monotonic() + 300
    try:
        # The store's socket, and those of two processes that have joined the group and then hang.
        while len(listening) < 3:
            assert time.monotonic() < deadline
            listening.update(listening_sockets(left_over(0)))
            time.sleep(0.2)
        assert len(left_over(0)) >= 5, "the parent, the child that describes the machine, the agent and two processes"
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


def test_gradients_are_views_of_what_is_sent(monkeypatch):
    made = {}
    monkeypatch.setattr(
        process_group, "DistributedDataParallel", lambda model, **options: made.update(options) or model
    )
    trial = SimpleNamespace(case=SimpleNamespace(processes=2, device="cpu"))
    process_group.distributed(torch.nn.Linear(2, 2), trial, broadcast_buffers=False)
    assert made == {"device_ids": None, "gradient_as_bucket_view": True, "broadcast_buffers": False}


def test_a_cause_ends_the_wait_for_the_processes_of_two_machines(monkeypatch):
    """Those beside the cause were ended and never answer."""
    store, case = torch.distributed.HashStore(), SimpleNamespace(processes=4, nodes=2)
    store.set("answer/1", json.dumps({"at": 1.0, "measurement": asdict(failed("ValueError: no good"))}))
    monkeypatch.setattr(ranks, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits"))
    answer = ranks._answer(store, case, SimpleNamespace(node=0, collective_seconds=300.0), [])
    assert answer["measurement"]["reason"] == "rank 1: ValueError: no good"


@pytest.mark.parametrize(
    ("device", "nodes", "bound"), [("cuda:0", 2, True), ("cuda:0", 1, False), ("cuda:2", 2, False), ("cpu", 2, False)]
)
def test_processes_are_bound_to_the_cpus_beside_their_cards(device, nodes, bound, monkeypatch):
    pytest.importorskip("torch.numa.binding")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    options = ranks.near_their_cards(device, nodes)
    assert bool(options) == bound
    assert not bound or options["numa_options"].affinity_mode.value == "node"
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert not ranks.near_their_cards(device, nodes), "torch does it with numactl"
