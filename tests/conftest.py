"""Short builders that several test files use."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpubench import datasets
from gpubench.doctor import nvidia_cards

# A shell's background jobs ignore Ctrl-C, and their children inherit that; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

USERS_DATA = os.environ.get(datasets.ENVIRONMENT_VARIABLE)
USERS_CACHE = datasets.cache_folder()


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """Downloads and the salt of the device hash go to a temporary folder; the user's data is out of sight."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.delenv(datasets.ENVIRONMENT_VARIABLE, raising=False)


@pytest.fixture
def cli(tmp_path):
    """Runs gpubench in a process of its own, in `tmp_path`, and returns what it printed and its exit code."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gpubench", *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture
def real_data() -> Path:
    """A root that holds the real CIFAR-100; skips the test where there is none."""
    root = Path(USERS_DATA) if USERS_DATA else USERS_CACHE
    if not datasets.is_complete("cifar100", root):
        pytest.skip(f"no CIFAR-100 in ${datasets.ENVIRONMENT_VARIABLE} or the cache")
    return root


@pytest.fixture
def real_cifar10() -> Path:
    """A root that holds the real CIFAR-10; skips the test where there is none."""
    root = Path(USERS_DATA) if USERS_DATA else USERS_CACHE
    if not datasets.is_complete("cifar10", root):
        pytest.skip(f"no CIFAR-10 in ${datasets.ENVIRONMENT_VARIABLE} or the cache")
    return root


@pytest.fixture
def real_text() -> Path:
    """A root that holds the real WikiText-2; skips the test where there is none."""
    root = Path(USERS_DATA) if USERS_DATA else USERS_CACHE
    if not datasets.is_complete("wikitext-2", root):
        pytest.skip(f"no WikiText-2 in ${datasets.ENVIRONMENT_VARIABLE} or the cache")
    return root


def pytest_collection_modifyitems(items):
    """Tests marked `gpu` need a card."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not nvidia_cards():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA card"))
