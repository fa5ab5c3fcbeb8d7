"""Runs a benchmark as a Slurm job (--slurm), through submitit: submits the job and follows it.

The job's first node leads as with --nodes and writes the rows, so it does not matter whether anybody follows the job.
"""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpubench.console import Screen
from gpubench.errors import UserError
from gpubench.printed import say
from gpubench.rows.write import check_writable
from gpubench.runner.nodes import SECRET

LOOK_SECONDS = 5.0
"""Seconds between two requests for the state of the job."""
NOTICE_SECONDS = 30
"""How long before its time limit a job gets a signal, so that it can still write its rows."""
NUMBERS = {"nodes", "gpus_per_node", "cpus_per_task", "time"}
CPU_OPTIONS = {"cpus_per_task", "cpus_per_gpu", "exclusive"}
"""Without any of them a job gets whole nodes: Slurm's default is one CPU for all processes and loaders."""


def parse_slurm(text: str) -> dict[str, Any]:
    """Return options such as `partition=gpu,time=60` as a mapping that always has `nodes`; raises UserError."""
    job_options: dict[str, Any] = {"nodes": 1}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        name = name.replace("-", "_")
        if not (name and equals and value) or (name in NUMBERS and not (value.isdecimal() and int(value))):
            raise UserError(
                f"--slurm {part}: write it as name=value, joined by commas: partition=gpu,nodes=4,gpus_per_node=8,"
                "time=60 (minutes), and whatever else sbatch takes"
            )
        job_options[name] = int(value) if name in NUMBERS else value
    return job_options


def run_on_slurm(job_options: Mapping[str, Any], arguments: Sequence[str], out: Path) -> int:
    """Submit the run of these arguments, or follow it if it runs already; returns the exit code.

    The arguments are `run` and its options, without --slurm and --out. All nodes must be able to write the CSV `out`.
    """
    out = out.resolve()
    if out.suffix != ".csv":
        raise UserError("--slurm needs --out FILE.csv, in a folder that all nodes can write")
    if not shutil.which("scontrol"):
        raise UserError("--slurm: this machine has no Slurm (no command scontrol); use a node that can submit jobs")
    check_writable(out)
    folder = out.with_suffix(".slurm")
    number = folder / "job"
    job = number.read_text().strip() if number.exists() else ""
    if job and _state(job) not in ENDED:
        say(f"job {job} runs this already; following it", err=True)
    else:
        job = _submit(job_options, [*arguments, "--out", str(out)], folder)
        number.write_text(job)
        say(f"job {job}; its output is in {folder}", err=True)
    state = follow(job, out)
    where = f"its rows are in {out}" if out.exists() else f"it wrote no row; its output is in {folder}"
    say(f"job {job} ended: {state}; {where}", err=True)
    return 0 if state == "COMPLETED" else 4


def _submit(job_options: Mapping[str, Any], arguments: Sequence[str], folder: Path) -> str:
    try:
        import submitit
    except ImportError:
        raise UserError("--slurm needs submitit: pip install -e '.[slurm]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    secret = folder / "secret"
    secret.unlink(missing_ok=True)
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(16))
    minutes = int(job_options.get("time", 60))
    whole_nodes = {} if CPU_OPTIONS & set(job_options) else {"exclusive": True}
    try:
        executor = submitit.SlurmExecutor(folder=folder / "log")
        executor.update_parameters(
            job_name="gpubench",
            ntasks_per_node=1,  # gpubench starts the processes of a node itself
            time=minutes,
            signal_delay_s=min(NOTICE_SECONDS, minutes * 15),
            # Slurm must not restart the job, perhaps on other nodes: the same command resumes it.
            additional_parameters={"no_requeue": True, **whole_nodes, **job_options},
        )
        is_set = any(argument.partition("=")[0] == "--processes" for argument in arguments)
        processes = [] if is_set else ["--processes", str(job_options.get("gpus_per_node", 1))]
        job = executor.submit(run_in_job, [*arguments, *processes], job_options["nodes"], str(folder))
    except (RuntimeError, subprocess.CalledProcessError, submitit.core.utils.FailedJobError) as error:
        message = " ".join(str(error).split())[:300]
        raise UserError(f"--slurm: the job was not accepted: {message}") from None
    return str(job.job_id)


def run_in_job(arguments: Sequence[str], nodes: int, folder: str) -> None:
    """Replace this process, the only task of the job on its node, by `gpubench run`."""
    command = [sys.executable, "-P", "-m", "gpubench", *arguments]
    if nodes > 1:
        first = _output_of("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()[0]
        port = 20000 + int(os.environ["SLURM_JOB_ID"]) % 10000
        command += ["--nodes", str(nodes), "--rendezvous", f"{_address(first)}:{port}"]
    environment = {**os.environ, SECRET: (Path(folder) / "secret").read_text()}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command, environment)


def _address(node: str) -> str:
    """Return the IP address by which Slurm reaches a node."""
    match = re.search(r"\bNodeAddr=(\S+)", _output_of("scontrol", "show", "node", node))
    return socket.gethostbyname(match[1] if match else node)


ENDED = {
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "BOOT_FAIL", "DEADLINE", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL", "UNKNOWN"),
}
"""Slurm's final states of a job, and `UNKNOWN` for a job that Slurm does not know."""


def follow(job: str, out: Path) -> str:
    """Wait for the end of the job with a progress line; returns its last state. Ctrl-C does not stop the job."""
    try:
        with Screen(stderr=True).status(f"job {job}") as status:
            while (state := _state(job)) not in ENDED:
                rows = max(0, len(out.read_bytes().splitlines()) - 1) if out.exists() else 0
                status.update(f"job {job} {state.lower() or 'in an unknown state'}, {rows} rows in {out}")
                time.sleep(LOOK_SECONDS)
        return state
    except KeyboardInterrupt:
        say("", f"job {job} still runs: the same command follows it again, `scancel {job}` stops it", err=True)
        raise SystemExit(130) from None


def _state(job: str) -> str:
    """Return the job's state as Slurm names it, `UNKNOWN` if it does not know the job, empty if it does not answer."""
    done = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, check=False)
    if match := re.search(r"\bJobState=(\w+)", done.stdout):
        return match[1]
    return "UNKNOWN" if "Invalid job id" in done.stderr else ""


def _output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
