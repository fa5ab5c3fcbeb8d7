"""Short builders that several test files use."""

import contextlib
import faulthandler
import gc
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest
from brief import brief
from hypothesis import HealthCheck, settings
from inside import described, run_inside, skip_sleep, store_peaks
from typer.testing import CliRunner

from gpubench.cli.app import app
from gpubench.data import datasets
from gpubench.hardware import environment
from gpubench.hardware.advice import nvidia_cards
from gpubench.runner.run import run
from gpubench.studies.cards import REFERENCE
from gpubench.studies.cards.ranking import rank

if "PYTEST_XDIST_WORKER" in os.environ:
    # Files run side by side, and torch's threads are many times slower where they have to share their cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    gc.disable()  # until all tests are imported (`pytest_collection_finish`)

# A shell's background jobs ignore Ctrl-C, and their children inherit that; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# An example may take as long as a busy machine needs for it.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

USERS_DATA = os.environ.get(datasets.ENVIRONMENT_VARIABLE)
USERS_CACHE = datasets.cache_folder()


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """Downloads and the salt of the device hash go to a temporary folder; the user's data is out of sight."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.delenv(datasets.ENVIRONMENT_VARIABLE, raising=False)


@dataclass(frozen=True)
class Done:
    """What a command left: as subprocess.CompletedProcess, whichever way it ran."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """Runs gpubench inside this process, in `tmp_path`; trials too, briefly, and sleep takes no time (inside.py)."""
    monkeypatch.chdir(tmp_path)
    skip_sleep(monkeypatch)
    monkeypatch.setattr("gpubench.worker.run_trial.sampling_for", lambda mode, accelerator: brief(mode))
    monkeypatch.setattr("gpubench.runner.process.describe", lambda: described()["facts"])
    monkeypatch.setattr("gpubench.runner.run.run", partial(run, run_child=run_inside))
    monkeypatch.setattr("gpubench.hardware.host.reference_seconds", lambda: 0.1)  # half a second, and told elsewhere

    def invoke(*arguments: object) -> Done:
        result = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
        return Done(result.exit_code, result.stdout, result.stderr)

    return invoke


def gpubench_in(folder: Path, *arguments: object) -> Done:
    """Run gpubench in a process of its own, with real children."""
    command = [sys.executable, "-m", "gpubench", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def cli_process(tmp_path):
    """Runs gpubench in a process of its own, in `tmp_path`, with real children."""
    return partial(gpubench_in, tmp_path)


@pytest.fixture
def known_peaks():
    """A whole run in processes has no peak of this CPU to measure."""
    store_peaks()


@pytest.fixture
def few_cards(monkeypatch):
    """Sites have pages of three published cards instead of all."""
    few = rank().of([REFERENCE, "RTX 4090", "RTX 2080 Ti"])
    monkeypatch.setattr("gpubench.studies.ranked_cases.rank", lambda: few)


def imported_script(name: str):
    """A script of benchmarks/, which are no package, as a module."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "benchmarks" / f"{name}.py")
    sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look for it there
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def left_over(monkeypatch):
    """Returns the processes that this test started and that still run, however they lost their parents."""
    mark = secrets.token_hex(8)
    monkeypatch.setenv("GPUBENCH_TEST", mark)

    def find(seconds: float = 120) -> list[psutil.Process]:
        """They have `seconds` to end."""
        deadline = time.monotonic() + seconds
        while True:
            found = []
            for process in psutil.process_iter(["status"]):
                with contextlib.suppress(psutil.Error):
                    ours = process.environ().get("GPUBENCH_TEST") == mark
                    if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                        found.append(process)
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    return find


@pytest.fixture
def real_data():
    """Returns a root that holds the real dataset of a name; skips the test where there is none."""

    def root_with(name: str) -> Path:
        root = Path(USERS_DATA) if USERS_DATA else USERS_CACHE
        if not datasets.is_complete(name, root):
            pytest.skip(f"no {name} in ${datasets.ENVIRONMENT_VARIABLE} or the cache")
        return root

    return root_with


def pytest_collection_modifyitems(items):
    """Tests marked `gpu` need a card, those marked `alone` measure: no other test may run beside either."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not nvidia_cards():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA card"))
    if "PYTEST_XDIST_WORKER" in os.environ:
        for item in items:
            for name in ("alone", "gpu"):
                if item.get_closest_marker(name):
                    item.add_marker(pytest.mark.skip(reason=f"nothing may run beside it: pytest -n 0 -m {name}"))


def pytest_collection_finish():
    """What is imported stays: no collection has to look at a million objects again."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers():
    """As many as there are CPUs for us, whatever the machine has; more than eight would want its memory."""
    return min(environment.cpu_count(), 8)


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """A trial in this process sets variables and seeds; a test that hangs ends with its stack."""
    environ = dict(os.environ)
    faulthandler.dump_traceback_later(1800, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    for name in set(os.environ) - set(environ):
        del os.environ[name]
    os.environ.update(environ)


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; tests that need one skip themselves where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install -e '.[browser]'")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with playwright.sync_playwright() as running:
        try:
            started = running.chromium.launch(
                executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            )
        except playwright.Error:
            pytest.skip("no Chromium that starts: Debian's package chromium, or $CHROMIUM")
        yield started
        started.close()


@pytest.fixture
def visited(browser):
    """Opens a file, or a place in one; the page that comes back lists its `problems` and `requests`."""
    contexts = []

    def visit(path, place="", **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(300_000)
        page.problems, page.requests = [], []
        page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.as_uri() + place)
        return page

    yield visit
    for context in contexts:
        context.close()
