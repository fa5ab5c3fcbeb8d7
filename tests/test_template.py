"""Trials are forks of a template: they compute as new processes do, and kills lose none and leave none over."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from test_process import STARTS_ANOTHER, gone, measured, skip_an_hour_once_written, task

from gpubench.rows.read import load
from gpubench.runner import template as parent
from gpubench.runner.process import Outcome
from gpubench.runner.template import Templates
from gpubench.suite import files
from gpubench.worker import template

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux only")


@pytest.fixture
def templates(monkeypatch):
    """A trial on this CPU stands for one on a card."""
    monkeypatch.setattr(parent, "NOT_FORKED", ())
    with Templates() as started:
        yield started


def run_in(templates: Templates, asked: dict[str, object]) -> tuple[Outcome, list[str]]:
    """How a task ended, and what it printed."""
    lines: list[str] = []
    return templates(asked, on_output=lines.append), lines


def importing(folder: Path, lines: str, body: str = "", *, torch: bool = False) -> dict[str, object]:
    """A task whose suite begins with these lines."""
    asked = task(folder, body)
    path = folder / "odd.py"
    path.write_text(f"{lines}\n{path.read_text()}".replace("torch=False", f"torch={torch}"))
    asked["trial"]["case"]["suite_digest"] = files.load(path).digest
    return asked


def test_trials_of_a_suite_are_forks_of_one_process_that_imported_it_once(tmp_path, templates):
    body = "import os; print(os.getppid(), os.getpgid(0) == os.getpid(), IMPORTED, os.getpid())"
    asked = importing(tmp_path, "import time\nIMPORTED = time.monotonic_ns()", body)
    answers = [run_in(templates, asked) for _ in range(3)]
    assert {outcome.start for outcome, _ in answers} == {"forked"}
    *same, pids = zip(*(lines[0].split() for _, lines in answers), strict=True)
    assert [len(set(values)) for values in same] == [1, 1, 1]
    assert same[1][0] == "True"
    # A zombie would count as another program on the card.
    assert not any(psutil.pid_exists(int(pid)) for pid in pids)


def test_trials_of_a_case_share_no_template_and_so_neither_hash_seed_nor_layout(tmp_path, templates):
    asked = task(tmp_path, "import os; print(os.getppid(), hash('a'))")
    answers: list[list[str]] = []
    for number in (0, 0, 1, 1, 2):
        asked["trial"]["index"] = number
        outcome, lines = run_in(templates, asked)
        assert outcome.start == "forked"
        answers.append(lines)
    assert answers[0] == answers[1]
    assert answers[2] == answers[3]
    assert len({line for (line,) in answers}) == 3


def test_a_fork_computes_with_all_its_threads(tmp_path, templates):
    """OpenMP hangs in a fork of a process that has used it, so the template must not."""
    body = """
    import os, torch
    torch.set_num_threads(2)
    x = torch.randn(1024, 1024)
    print((x @ x).sum().isfinite().item(), len(os.listdir("/proc/self/task")) > 2)
    """
    asked = importing(tmp_path, "", body, torch=True)
    asked["trial"]["case"]["params"] = {
        "threads": 2, "huge_pages": False, "reduced_reduction": False, "cudnn_benchmark": True,
    }  # fmt: skip
    asked["trial"]["prove"] = False
    for _ in range(2):
        outcome, lines = run_in(templates, asked)
        assert (measured(outcome).status, outcome.start, lines) == ("ok", "forked", ["True True"])


@pytest.mark.parametrize(
    ("body", "words"),
    [("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"), ("import os; os._exit(3)", "exit code 3")],
)
def test_a_fork_that_dies_has_a_reason_and_the_next_one_runs(tmp_path, templates, body, words):
    flag = tmp_path / "again"
    asked = task(tmp_path, f"import pathlib\nif not pathlib.Path({str(flag)!r}).exists():\n    {body}")
    outcome = templates(asked)
    assert (outcome.end, outcome.start) == ("died", "forked")
    assert words in outcome.reason
    flag.touch()
    assert measured(templates(asked)).status == "ok"


def test_the_time_limit_kills_the_whole_group_of_a_fork(tmp_path, templates, monkeypatch):
    pids = tmp_path / "pids"
    skip_an_hour_once_written(pids, monkeypatch)
    outcome = templates(task(tmp_path, STARTS_ANOTHER.format(pids=str(pids))), time_limit_seconds=1800)
    assert (outcome.end, outcome.start) == ("timed_out", "forked")
    assert gone(int(pids.read_text()))


def test_a_fork_whose_template_is_killed_ends_and_a_new_process_takes_over_and_then_another_template(
    tmp_path, templates
):
    pids, flag = tmp_path / "pids", tmp_path / "again"
    body = f"""
    import os, pathlib, signal, subprocess, time
    if not pathlib.Path({str(flag)!r}).exists():
        other = subprocess.Popen(["sleep", "600"])
        open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{other.pid}}")
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    """
    asked = task(tmp_path, body)
    assert templates(asked).end == "died"
    assert all(gone(int(pid)) for pid in pids.read_text().split())
    flag.touch()
    for start in ("fresh", "forked"):
        outcome = templates(asked)
        assert (measured(outcome).status, outcome.start) == ("ok", start)


def test_an_edited_suite_is_not_trained_under_either_digest(tmp_path, templates):
    asked = task(tmp_path, "print('old')")
    assert run_in(templates, asked)[1] == ["old"]
    edited = task(tmp_path, "print('new')")
    for trial in (asked, edited):
        outcome, lines = run_in(templates, trial)
        assert "was edited while the run went on" in measured(outcome).reason
        assert lines == []


IN_TEMPLATE = "'gpubench.worker.template' in sys.modules and 'pytest' not in sys.modules"


@pytest.mark.parametrize(("line", "words"), [
    ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "started threads"),
    pytest.param(
        "import torch\ntorch.set_num_threads(2)\ntorch.ones(999, 999) @ torch.ones(999, 999)",
        "started threads",
        marks=pytest.mark.e2e,
    ),
    (f"import sys\nif {IN_TEMPLATE}: raise OSError('not here')", "not here"),
    (f"import os, sys\nif {IN_TEMPLATE}: os._exit(3)", ""),  # each task tries it again
])  # fmt: skip
def test_a_suite_that_cannot_be_forked_runs_in_new_processes(tmp_path, templates, line, words):
    asked, path = importing(tmp_path, line), tmp_path / "odd.py"
    for _ in range(2):
        outcome = templates(asked)
        assert (measured(outcome).status, outcome.start) == ("ok", "fresh")
    assert words in templates.refused.get(str(path), "")
    assert bool(words) == (str(path) in templates.refused)


def test_a_process_that_has_opened_a_device_is_not_forked(tmp_path, monkeypatch):
    with (tmp_path / "nvidiactl").open("w"):
        assert template._not_to_fork() != "it has opened a device"
        monkeypatch.setattr(template, "DEVICE_FILES", (str(tmp_path / "nvidia"),))
        assert template._not_to_fork() == "it has opened a device"
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    assert template._not_to_fork() == "it has opened a device"


def test_forks_have_random_numbers_of_their_own(tmp_path, templates):
    asked = importing(tmp_path, "import numpy", "print(numpy.random.rand())")
    assert run_in(templates, asked)[1] != run_in(templates, asked)[1]


def test_no_descriptor_is_left_open(tmp_path, templates):
    asked = task(tmp_path, "import os; print(len(os.listdir('/proc/self/fd')))")
    first = run_in(templates, asked)[1]
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert all(run_in(templates, asked)[1] == first for _ in range(3))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize(
    ("device", "processes", "key"), [("cuda:0", 1, ("suite.py", 3)), ("cuda:0", 2, None), ("cpu", 1, None)]
)
def test_a_cpu_and_several_processes_need_new_processes(device, processes, key):
    case = {"suite_path": "suite.py", "processes": processes, "device": device}
    with Templates() as templates:
        assert templates._key_of({"task": "trial", "trial": {"case": case, "index": 3}}) == key


def test_what_an_import_prints_is_printed_by_each_fork(tmp_path, templates):
    asked = importing(tmp_path, "import os\nos.system('echo imported')", "print('trained')")
    for _ in range(2):
        outcome, lines = run_in(templates, asked)
        assert (outcome.start, lines) == ("forked", ["imported", "trained"])


def test_an_import_that_hangs_ends_with_the_time_limit_of_a_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(parent, "NOT_FORKED", ())
    asked = importing(tmp_path, f"import sys, time\nif {IN_TEMPLATE}: time.sleep(60)")
    with Templates(0.5) as templates:
        outcome = templates(asked)
        assert (measured(outcome).status, outcome.start) == ("ok", "fresh")
        assert "its import took more than" in templates.refused[str(tmp_path / "odd.py")]


KILLS = '''"""Kills a process of its run in some trials, once each."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from gpubench import Suite

FOLDER = Path(__file__).parent
KILLER = """
import os, signal, time, psutil
print("ready", flush=True)
while psutil.pid_exists(int(os.environ["AFTER"])):
    time.sleep(0.01)
os.kill(int(os.environ["VICTIM"]), signal.SIGKILL)
"""
PLAN = {
    0: ("template", "begin"), 1: ("trial", "step"), 2: ("parent", "begin"), 3: ("template", "after"),
    4: ("parent", "step"), 5: ("trial", "begin"), 6: ("parent", "after"), 7: ("template", "step"),
}


def strike(point, trial):
    victim, when = PLAN.get(trial.index, ("", ""))
    flag = FOLDER / f"{trial.index}.done"
    if when != point or flag.exists():
        return
    flag.touch()
    parent, *parents = psutil.Process().parents()
    run = next(process for process in [parent, *parents] if "run" in process.cmdline())
    if victim == "template":
        assert parent != run
    pid = {"trial": os.getpid(), "template": parent.pid, "parent": run.pid}[victim]
    if point == "after":
        os.environ.update(AFTER=str(os.getpid()), VICTIM=str(pid))
        killer = subprocess.Popen([sys.executable, "-c", KILLER], start_new_session=True, stdout=subprocess.PIPE)
        killer.stdout.readline()
    else:
        os.kill(pid, signal.SIGKILL)
        signal.pause()


def train(trial, clock):
    strike("begin", trial)
    for _ in clock.epochs(1):
        for _ in clock.steps([range(4)] * 3, phase="train"):
            strike("step", trial)
    strike("after", trial)
    return {}


SUITE = Suite(train=train, models=("a",), params={}, version=1, torch=False)
'''


FORKED_ON_THE_CPU = """
from gpubench.cli.app import app
from gpubench.runner import template

template.NOT_FORKED = ()
app()
"""


@pytest.mark.e2e
def test_each_trial_is_there_once_whatever_is_killed(left_over, tmp_path):
    (tmp_path / "kills.py").write_text(KILLS)
    codes = []
    options = ["--suite", "kills.py", "--device", "cpu", "--precision", "fp32", "--repeats", "9", "--out", "a.csv"]
    while 0 not in codes and len(codes) < 12:
        command = [sys.executable, "-c", FORKED_ON_THE_CPU, "run", *options]
        codes.append(subprocess.run(command, cwd=tmp_path, check=False, timeout=1800).returncode)
    assert codes[-1] == 0
    assert codes.count(-signal.SIGKILL) >= 2  # the third kill may come after the end of its run
    assert set(codes) <= {-signal.SIGKILL, 4, 0}
    rows = load([tmp_path / "a.csv"]).frame
    finished = rows[rows["status"] == "ok"]
    assert sorted(finished["trial"]) == list(range(9))
    assert "forked" in set(finished["start"])
    assert len(list(tmp_path.glob("*.done"))) == 8
    assert left_over() == []
