"""What a row says of where it was made, and what it does not."""

import getpass
import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from gpubench.hardware import environment
from gpubench.hardware.environment import without_names


def test_a_user_without_a_name_takes_nothing_away(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nobody)
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert without_names("OSError: /data/a.bin is not there") == "OSError: /data/a.bin is not there"


def test_a_home_becomes_a_tilde(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "marie")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/marie"))
    assert without_names("/home/marie/data of marie") == "~/data of USER"


def control_groups(folder, files, own):
    """A tree of groups as in /sys/fs/cgroup, and the file that names the process's own."""
    for name, text in files.items():
        (folder / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "groups" / name).write_text(f"{text}\n")
    (folder / "own").write_text(f"{own}\n")
    return folder / "groups", folder / "own"


@pytest.mark.parametrize(
    ("files", "own", "cpus"),
    [
        ({"cpu.max": "150000 100000"}, "0::/", 1.5),
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"job/cpu.max": "200000 100000", "job/step/cpu.max": "max 100000"}, "0::/job/step", 2.0),
        ({"cpu.max": "300000 100000"}, "0::/docker/of-the-host", 3.0),
        ({}, "0::/", None),
    ],
)
def test_a_limit_of_cpu_time_counts_as_cpus(tmp_path, files, own, cpus):
    assert environment.cgroup_cpus(*control_groups(tmp_path, files, own)) == cpus


@pytest.mark.parametrize(
    ("files", "own", "limit"),
    [
        ({"memory.max": "4096"}, "0::/", 4096),
        ({"memory.max": "max"}, "0::/", None),
        ({"job/memory.max": "8192", "job/step/memory.max": "max"}, "0::/job/step", 8192),
        ({}, "0::/", None),
    ],
)
def test_files_stay_in_the_memory_that_is_free_or_in_the_groups(tmp_path, monkeypatch, files, own, limit):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**30))
    assert environment.memory_for_files(*control_groups(tmp_path, files, own)) == (limit or 2**30)


def test_no_more_cpus_than_the_limit_gives(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    for quota, cpus in ((None, 64), (4.0, 4), (0.5, 1), (100.0, 64)):
        monkeypatch.setattr(environment, "cgroup_cpus", lambda quota=quota: quota)
        assert environment.cpu_count() == cpus
