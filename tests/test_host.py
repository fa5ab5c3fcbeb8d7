"""What the host, its control groups and NCCL tell, from trees of files; and what a row does not say of its user."""

import getpass
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from facts import lacking

from gpubench.hardware import environment, host
from gpubench.hardware.environment import without_names
from gpubench.hardware.interconnect import nccl_facts


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_governors_and_process_namespaces_are_told(tmp_path):
    assert host.cpu_governor(tmp_path) == ""
    for cpu, governor in enumerate(["powersave", "performance", "powersave"]):
        write(tmp_path / f"cpu{cpu}/cpufreq/scaling_governor", f"{governor}\n")
    assert host.cpu_governor(tmp_path) == "performance+powersave"
    link = tmp_path / "pid"
    link.symlink_to("pid:[4026531836]")
    assert host.all_processes_visible(link)
    link.unlink()
    link.symlink_to("pid:[4026532448]")
    assert not host.all_processes_visible(link)
    assert not host.all_processes_visible(tmp_path / "none")
    assert host.text_of(Path(sys.executable))  # not UTF-8


def test_the_memory_node_of_a_card_and_whether_the_process_may_leave_it(tmp_path):
    write(tmp_path / "0000:c1:00.0/numa_node", "1\n")
    write(tmp_path / "0000:01:00.0/numa_node", "-1\n")
    assert host.numa_node("0000:c1:00", tmp_path) == 1
    assert host.numa_node("0000:01:00", tmp_path) is None
    assert host.numa_node("", tmp_path) is None
    write(tmp_path / "node0/cpulist", "0-4095,8192\n")
    write(tmp_path / "node1/cpulist", "9999\n")
    assert not host.may_leave_node(0, tmp_path)
    assert host.may_leave_node(1, tmp_path)
    assert not host.may_leave_node(2, tmp_path)  # not told


@pytest.mark.parametrize(("file", "environ", "kind"), [
    (None, {}, "none"), (".dockerenv", {}, "docker"),
    ("run/.containerenv", {"container": "podman"}, "podman"),
    (".dockerenv", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
    (None, {"APPTAINER_CONTAINER": "/image.sif"}, "apptainer"), (None, {"container": "lxc"}, "lxc"),
])  # fmt: skip
def test_the_kind_of_container(tmp_path, file, environ, kind):
    if file:
        write(tmp_path / file, "")
    assert host.container(tmp_path, environ) == kind


def test_cpu_energy_sums_packages_and_survives_the_counters_turn(tmp_path):
    assert host.cpu_energy(tmp_path)() is None
    for name, zone in (("package-0", "intel-rapl:0"), ("package-1", "intel-rapl:1"), ("core", "intel-rapl:0:0")):
        write(tmp_path / zone / "name", f"{name}\n")
        write(tmp_path / zone / "max_energy_range_uj", "10000000\n")
        write(tmp_path / zone / "energy_uj", "9000000\n")
    read = host.cpu_energy(tmp_path)
    assert read() == pytest.approx(18)
    write(tmp_path / "intel-rapl:0/energy_uj", "1000000\n")
    assert read() == pytest.approx(20)
    (tmp_path / "intel-rapl:1/energy_uj").unlink()  # only root may read it on most machines
    assert read() is None


@pytest.mark.parametrize(
    ("busy", "own", "others", "slowdown"),
    [(40.0, 40.0, 0.0, 1.0), (40.0, 30.0, 0.5, 1.5), (10.0, 12.0, 0.0, 1.0), (20.0, 2.5, 0.875, 4.875)],
)
def test_the_share_of_the_cpus_that_others_took(monkeypatch, busy, own, others, slowdown):
    counts = iter([(100.0, 7.0, 0.0), (100.0 + busy, 7.0 + own, 10.0)])
    now = next(counts)
    monkeypatch.setattr(host, "_busy_seconds", lambda: now[0])
    monkeypatch.setattr(host, "_own_seconds", lambda: now[1])
    monkeypatch.setattr(host.time, "monotonic", lambda: now[2])
    monkeypatch.setattr(host.psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(host.os, "cpu_count", lambda: 2)
    assert host.cpu_load(1) is None
    load = host.cpu_load(2)
    now = next(counts)
    assert load.others() == pytest.approx(others)
    assert load.slowdown() == pytest.approx(slowdown)


def test_a_childs_time_is_ones_own():
    load = host.CpuLoad()
    before = host._own_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert host._own_seconds() - before > 0.05
    assert 0 <= load.others() < 1


def test_a_row_names_no_user_and_no_home(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "marie")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/marie"))
    monkeypatch.setattr(platform, "node", lambda: "gpu7.lab.org")
    assert without_names("/home/marie/data of marie: gpu7, gpu7.lab.org") == "~/data of USER: HOST, HOST"
    monkeypatch.setattr(getpass, "getuser", Mock(side_effect=KeyError("getpwuid(): uid not found: 12345")))
    salt = Path(environment.platformdirs.user_data_dir("gpubench")) / "salt"
    write(salt, "")
    assert len(environment.salted_hash("GPU-1")) == 12
    assert len(salt.read_text()) == 32
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert without_names("OSError: /data/a.bin is not there") == "OSError: /data/a.bin is not there"


@pytest.mark.parametrize(
    ("limits", "own", "cpus", "memory"),
    [
        ({"": ("150000 100000", "4096")}, "0::/", 1.5, 4096),
        ({"": ("max 100000", "max")}, "0::/", None, None),
        ({"job": ("200000 100000", "8192"), "job/step": ("max 100000", "max")}, "0::/job/step", 2.0, 8192),
        ({"": ("300000 100000", "16384")}, "0::/docker/of-the-host", 3.0, 16384),
        ({}, "0::/", None, None),
    ],
)
def test_limits_of_the_control_groups_count_as_cpus_and_as_memory_for_files(
    tmp_path, monkeypatch, limits, own, cpus, memory
):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**30))
    for group, texts in limits.items():
        for name, text in zip(("cpu.max", "memory.max"), texts, strict=True):
            write(tmp_path / "groups" / group / name, f"{text}\n")
    write(tmp_path / "own", f"{own}\n")  # as /sys/fs/cgroup, and the file that names the process's own group
    assert environment.cgroup_cpus(tmp_path / "groups", tmp_path / "own") == cpus
    assert environment.memory_for_files(tmp_path / "groups", tmp_path / "own") == (memory or 2**30)


def test_no_more_cpus_than_the_limit_gives(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    for quota, cpus in ((None, 64), (4.0, 4), (0.5, 1), (100.0, 64)):
        monkeypatch.setattr(environment, "cgroup_cpus", lambda quota=quota: quota)
        assert environment.cpu_count() == cpus


LOG = """
h:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
h:1:2 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA
"""


def test_version_and_direct_exchange_are_read_where_there_is_a_log(tmp_path):
    log = tmp_path / "nccl.log"
    assert nccl_facts(log) == ""
    log.write_text(LOG)
    assert lacking(nccl_facts(log), "NCCL 2.27.3+cuda12.9", "GPUDirect RDMA used") == []
    log.write_text(LOG.replace("/GDRDMA", ""))
    assert nccl_facts(log).endswith("GPUDirect RDMA not used")
