"""Runs, cancels, times out and kills jobs on a real Slurm (two nodes on one host)."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from gpubench.cli.run import without
from gpubench.errors import UserError
from gpubench.rows.read import load
from gpubench.runner.slurm import _submit, parse_slurm

ROOT = Path(__file__).parents[1]
SUITE = ROOT / "tests" / "suites" / "ranks.py"
SCRIPT = ROOT / "tests" / "slurm_cluster.sh"
NEEDED = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch")


@pytest.mark.parametrize(
    ("wishes", "exclusive"), [({}, True), ({"cpus_per_task": 64}, None), ({"exclusive": "user"}, "user")]
)
def test_a_job_that_names_no_cpus_gets_whole_nodes(monkeypatch, tmp_path, wishes, exclusive):
    executor = Mock(**{"submit.return_value.job_id": "7"})
    stand_in = Mock(**{"SlurmExecutor.return_value": executor, "core.utils.FailedJobError": OSError})
    monkeypatch.setitem(sys.modules, "submitit", stand_in)
    assert _submit({"nodes": 1, "gpus_per_node": 8, **wishes}, [], tmp_path) == "7"
    asked = executor.update_parameters.call_args.kwargs
    assert asked["additional_parameters"].get("exclusive") == exclusive


@pytest.fixture(scope="module")
def cluster():
    """A folder that every node can write. Skips without Slurm or without root."""
    pytest.importorskip("submitit")
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}: see tests/slurm_cluster.sh")
    folder = Path(tempfile.mkdtemp(prefix="gpubench-slurm-"))
    folder.chmod(0o755)  # munge and the database run as users of their own
    started = subprocess.run([SCRIPT, "start", folder / "slurm"], stdout=subprocess.DEVNULL, check=False)
    if started.returncode:
        pytest.skip("Slurm did not start: see tests/slurm_cluster.sh")
    os.environ["SLURM_CONF"] = str(folder / "slurm" / "slurm.conf")
    yield folder
    subprocess.run([SCRIPT, "stop", folder / "slurm"], stdout=subprocess.DEVNULL, check=False)
    del os.environ["SLURM_CONF"]
    shutil.rmtree(folder, ignore_errors=True)


class Job:
    """`gpubench run --slurm` in a process of its own."""

    def __init__(self, folder: Path, name: str, slurm: str, *more: object) -> None:
        self.out = folder / f"{name}.csv"
        self.command = [
            sys.executable, "-m", "gpubench", "run", "--suite", str(SUITE), "--models", "mlp", "--device", "cpu",
            "--precision", "fp32", "--quick", "--slurm", slurm, "--out", str(self.out), *map(str, more),
        ]  # fmt: skip
        self.process = subprocess.Popen(self.command, cwd=folder, stderr=subprocess.PIPE, text=True)

    @property
    def number(self) -> str:
        wait_for(lambda: (self.out.with_suffix(".slurm") / "job").exists())
        return (self.out.with_suffix(".slurm") / "job").read_text()

    def runs(self) -> None:
        """Wait until the job trains (its file exists)."""
        wait_for(self.out.exists)
        time.sleep(3)

    def end(self, seconds: float = 600):
        """Return (exit code, stderr, rows) of the ended job."""
        _, err = self.process.communicate(timeout=seconds)
        assert "Traceback" not in err, err
        return self.process.returncode, err, load([self.out]).frame


def wait_for(condition, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.alone
def test_a_job_over_two_nodes(cluster):
    code, err, frame = Job(cluster, "fine", "partition=cpu,nodes=2,time=5").end()
    assert code == 0, err + str(list(frame["reason"]))
    trial = frame.iloc[0]
    assert (trial["status"], trial["processes"], trial["nodes"]) == ("ok", 2, 2)
    assert "COMPLETED" in err


@pytest.mark.alone
def test_a_second_command_follows_the_job(cluster):
    first = Job(cluster, "follow", "time=5", "--set", "what=slow", "--set", "who=0", "--repeats", 2)
    first.runs()
    first.process.send_signal(signal.SIGINT)
    first.process.communicate(timeout=300)
    second = Job(cluster, "follow", "time=5", "--set", "what=slow", "--set", "who=0", "--repeats", 2)
    code, err, frame = second.end()
    assert "already; following it" in err
    assert code == 0, err
    assert list(frame["status"]) == ["ok", "ok"]


@pytest.mark.alone
def test_a_cancelled_job(cluster):
    job = Job(cluster, "cancel", "time=5", "--set", "what=hangs", "--set", "who=0", "--repeats", 2)
    job.runs()
    subprocess.run(["scancel", job.number], check=True)
    code, err, frame = job.end()
    assert code == 4, err
    assert len(frame) == 2
    assert set(frame["status"]) <= {"interrupted", "failed"}
    assert frame["reason"].str.len().min() > 10


@pytest.mark.alone
def test_a_job_that_runs_out_of_time(cluster):
    job = Job(cluster, "late", "time=1", "--set", "what=hangs", "--set", "who=0", "--repeats", 2)
    code, err, frame = job.end()
    assert code == 4, err
    assert len(frame) == 2
    assert set(frame["status"]) <= {"interrupted", "timed_out", "failed"}
    assert frame["reason"].str.contains("time").any(), list(frame["reason"])


@pytest.mark.alone
def test_a_job_whose_node_dies(cluster):
    job = Job(cluster, "dead", "nodelist=n1,time=5", "--set", "what=hangs", "--set", "who=0", "--repeats", 2)
    job.runs()
    daemon = psutil.Process(int((cluster / "slurm" / "slurmd.n1.pid").read_text()))
    steps = [p for p in psutil.process_iter(["name", "cmdline"]) if "slurmstepd" in (p.info["name"] or "")]
    victims = [daemon, *(child for step in steps for child in [step, *step.children(recursive=True)])]
    for process in victims:
        process.kill()
    try:
        code, err, _ = job.end()
    finally:
        subprocess.run(["slurmd", "-N", "n1"], check=True)
    assert code == 4, err
    assert "NODE_FAIL" in err


def test_slurm_options_and_the_command_of_the_job(cli, monkeypatch):
    assert parse_slurm("partition=gpu,nodes=4, gpus_per_node=8") == {"nodes": 4, "partition": "gpu", "gpus_per_node": 8}
    assert parse_slurm("gpus-per-node=2")["gpus_per_node"] == 2
    for wrong in ("gpu", "nodes=many", "nodes=²", "nodes=0", "partition="):
        with pytest.raises(UserError, match="--slurm"):
            parse_slurm(wrong)
    words = ["run", "--slurm", "nodes=2", "--quick", "--out=a.csv", "--set", "a=b"]
    assert without(words, "--slurm", "--out") == ["run", "--quick", "--set", "a=b"]
    monkeypatch.setenv("PATH", "")
    for out, reason in ((".", "--out FILE.csv"), ("a.csv", "no Slurm")):
        done = cli("run", "--suite", SUITE, "--slurm", "nodes=1", "--out", out)
        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
