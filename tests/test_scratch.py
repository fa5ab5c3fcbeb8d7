"""What killed runs leave in the temporary folder is removed by the next one."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from test_process import gone, started_trial

from gpubench.errors import UserError
from gpubench.runner import scratch


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A temporary folder of this test, for its children too."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    monkeypatch.setenv("TMPDIR", str(path))
    return path


def test_a_folder_is_there_until_its_block_ends_and_no_sweep_takes_it(temporary):
    with scratch.folder() as folder:
        (Path(folder) / "log").write_text("words")
        scratch.sweep()
        assert [path.name for path in Path(folder).iterdir()] == ["log"]
    assert list(temporary.iterdir()) == []


HOLDS = """
import time
from gpubench.runner import scratch
with scratch.folder() as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def test_a_folder_is_swept_when_its_process_is_dead_and_not_before(temporary):
    owner = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True)
    folder = Path(owner.stdout.readline().strip())
    scratch.sweep()
    assert folder.is_dir()
    owner.send_signal(signal.SIGSTOP)
    scratch.sweep()
    assert folder.is_dir()
    owner.kill()
    owner.wait()
    owner.stdout.close()
    (folder / "attempt" / "0").mkdir(parents=True)
    scratch.sweep()
    assert list(temporary.iterdir()) == []


def test_only_folders_of_ours_are_swept(temporary, monkeypatch):
    ours, others = temporary / f"{scratch.PREFIX}abc", temporary / "gpubench-abc"
    for path in (ours, others):
        path.mkdir()
    (temporary / f"{scratch.PREFIX}link").symlink_to(others)
    (temporary / f"{scratch.PREFIX}file").write_text("words")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    scratch.sweep()
    assert ours.is_dir()
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    scratch.sweep()
    assert sorted(path.name for path in temporary.iterdir()) == [
        "gpubench-abc", f"{scratch.PREFIX}file", f"{scratch.PREFIX}link",
    ]  # fmt: skip


def test_where_there_are_no_locks_nothing_is_swept(temporary, monkeypatch):
    (temporary / f"{scratch.PREFIX}abc").mkdir()

    def no_locks(*arguments):
        raise OSError(9, os.strerror(9))  # as NFS says of a folder

    monkeypatch.setattr("fcntl.flock", no_locks)
    scratch.sweep()
    with scratch.folder() as folder:
        assert Path(folder).is_dir()
    assert [path.name for path in temporary.iterdir()] == [f"{scratch.PREFIX}abc"]


def test_without_room_for_a_folder_one_line_says_so(temporary):
    temporary.rmdir()
    with pytest.raises(UserError, match=r"no temporary folder can be made .* TMPDIR"), scratch.folder():
        pass


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tell a stopped process of its parent's death")
def test_a_stopped_child_does_not_outlive_a_killed_parent(tmp_path):
    parent, child = started_trial(tmp_path)
    os.killpg(child, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    assert gone(child)
