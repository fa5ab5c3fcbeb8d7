"""A run as a Slurm job, through submitit: submit it, follow it, and write a row for every trial however it ended.

The job's first node leads as with --nodes and writes the rows itself. So nobody has to watch the job.
"""

import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.rows.read import load
from gpubench.rows.row import COLUMNS, Row
from gpubench.runner.cluster.nodes import SECRET
from gpubench.runner.options import Options
from gpubench.suite import files
from gpubench.suite.trial import GOOD

PLAN = "GPUBENCH_PLAN"
"""Environment variable: the file in which a run puts a row for each trial that it is going to do."""
LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
"""How long Slurm may fail to answer before the job counts as lost from sight."""
NOTICE_SECONDS = 30
"""How long before the end of its time a job is told, so that it still can write its rows."""
NUMBERS = {"nodes", "gpus_per_node", "cpus_per_task", "time"}
CPU_WISHES = {"cpus_per_task", "cpus_per_gpu", "exclusive"}
"""Whoever names none of them gets whole nodes: else Slurm gives a job one CPU, for all its processes and loaders."""


def parse_slurm(text: str) -> dict[str, Any]:
    """`partition=gpu,nodes=4,time=60` as a mapping, `nodes` always in it; raises UserError."""
    found: dict[str, Any] = {"nodes": 1}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        name = name.replace("-", "_")
        if not (name and equals and value) or (name in NUMBERS and not (value.isdigit() and int(value))):
            raise UserError(
                f"--slurm {part}: write it as name=value, joined by commas: partition=gpu,nodes=4,gpus_per_node=8,"
                "time=60 (minutes), and whatever else sbatch takes"
            )
        found[name] = int(value) if name in NUMBERS else value
    return found


def run_on_slurm(wishes: Mapping[str, Any], arguments: Sequence[str], options: Options, console: Console) -> int:
    """Submit the run that `arguments` ask for, or go on following it where it runs already; returns the exit code.

    Args:
        wishes: what `parse_slurm` returned.
        arguments: those of `gpubench run`, without --slurm and --out.
        options: the same, parsed; --out has to name a CSV file that all nodes can write.
        console: for the progress line.
    """
    out = options.out.resolve()
    if out.suffix != ".csv":
        raise UserError("--slurm needs --out FILE.csv, in a folder that every node can write")
    records.check_writable(out)
    folder = out.with_suffix(".slurm")
    ticket = folder / "job"
    job = ticket.read_text().strip() if ticket.exists() else ""
    if job and _state(job) in ENDED:
        job = ""
    if job:
        console.print(f"job {job} is running this already; following it", markup=False)
    else:
        before = len(load([out]).frame) if out.exists() else 0
        job = _submit(wishes, [*arguments, "--out", str(out)], folder)
        ticket.write_text(job)
        (folder / "rows-before").write_text(str(before))
        console.print(f"job {job}; its output is in {folder}", markup=False)
    state = follow(job, out, console)
    written_off = account(job, state, out, folder, options)
    frame = load([out]).frame
    new = frame.iloc[int((folder / "rows-before").read_text()) :]
    console.print(f"job {job}: {state}; {len(new)} rows in {out}", markup=False)
    if written_off:
        console.print(f"{written_off} of them stand for trials that the job did not do", markup=False)
    return 0 if not new.empty and new["status"].isin(GOOD).all() else 4


def _submit(wishes: Mapping[str, Any], arguments: Sequence[str], folder: Path) -> str:
    """Hand the job to Slurm; returns its number."""
    try:
        import submitit
    except ImportError:
        raise UserError("--slurm needs submitit: pip install 'gpubench-train[slurm]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.csv").unlink(missing_ok=True)
    secret = folder / "secret"
    secret.unlink(missing_ok=True)
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(16))
    named = {
        "partition",
        "gpus_per_node",
        "cpus_per_task",
        "mem",
        "account",
        "qos",
        "constraint",
        "exclude",
        "nodelist",
    }
    minutes = int(wishes.get("time", 60))
    local = int(wishes.get("gpus_per_node", 1))
    extra = {name: value for name, value in wishes.items() if name not in {*named, "nodes", "time"}}
    if not CPU_WISHES & set(wishes):
        extra["exclusive"] = True
    try:
        executor = submitit.SlurmExecutor(folder=folder / "log")
        executor.update_parameters(
            job_name="gpubench",
            nodes=wishes["nodes"],
            ntasks_per_node=1,  # gpubench starts the processes of a node itself
            time=minutes,
            signal_delay_s=min(NOTICE_SECONDS, minutes * 15),
            # A job that began again on its own would write over what the first one found.
            additional_parameters={"no-requeue": True, **extra},
            **{name: value for name, value in wishes.items() if name in named},
        )
        many = [] if any(word.partition("=")[0] == "--processes" for word in arguments) else ["--processes", str(local)]
        job = executor.submit(run_in_job, [*arguments, *many], wishes["nodes"], str(folder))
    except (RuntimeError, subprocess.CalledProcessError, submitit.core.utils.FailedJobError) as error:
        words = " ".join(str(error).split())[:300]
        raise UserError(f"--slurm: the job was not taken: {words}") from None
    return str(job.job_id)


def run_in_job(arguments: Sequence[str], nodes: int, folder: str) -> None:
    """One task of the job, the only one on its node: becomes `gpubench run`."""
    command = [sys.executable, "-P", "-m", "gpubench", *arguments]
    if nodes > 1:
        first = _said("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()[0]
        port = 20000 + int(os.environ["SLURM_JOB_ID"]) % 10000
        command += ["--nodes", str(nodes), "--rendezvous", f"{_address(first)}:{port}"]
    environment = {**os.environ, PLAN: str(Path(folder) / "plan.csv"), SECRET: (Path(folder) / "secret").read_text()}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command, environment)


def plan_file() -> Path | None:
    """Where this run, as a job of ours, puts a row for each trial that it is going to do; None elsewhere."""
    named = os.environ.get(PLAN)
    return Path(named) if named else None


def _address(node: str) -> str:
    """What Slurm itself reaches a node by, as a number."""
    found = re.search(r"\bNodeAddr=(\S+)", _said("scontrol", "show", "node", node))
    return socket.gethostbyname(found[1] if found else node)


ENDED = {
    "COMPLETED": "ended",
    "FAILED": "failed",
    "CANCELLED": "was cancelled",
    "TIMEOUT": "ran out of time",
    "NODE_FAIL": "lost a node",
    "OUT_OF_MEMORY": "ran out of memory",
    "PREEMPTED": "had to make room for another",
    "BOOT_FAIL": "lost a node that did not start",
    "DEADLINE": "missed its deadline",
    "UNKNOWN": "is not known to Slurm any more",
}
"""States in which a job stays, and what they mean."""


def follow(job: str, out: Path, console: Console) -> str:
    """Wait for the job's end with a progress line; returns its last state. Ctrl-C leaves the job running."""
    unanswered = 0.0
    try:
        with console.status(f"job {job}") as status:
            while True:
                state = _state(job)
                if state in ENDED:
                    return state
                unanswered = 0.0 if state else unanswered + LOOK_SECONDS
                if unanswered > PATIENCE_SECONDS:
                    return "UNKNOWN"
                rows = max(0, len(out.read_bytes().splitlines()) - 1) if out.exists() else 0
                status.update(f"job {job} {state.lower() or 'asked for'}, {rows} rows in {out}")
                time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        console.print(
            f"\nstopped following: job {job} goes on; the same command follows it again, `scancel {job}` ends it",
            markup=False,
        )
        raise SystemExit(130) from None


def _state(job: str) -> str:
    """The job's state in Slurm's word, `UNKNOWN` where Slurm has none, empty where Slurm does not answer."""
    done = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, check=False)
    found = re.search(r"\bJobState=(\w+)", done.stdout)
    if found:
        return found[1]
    if "Invalid job id" not in done.stderr:
        return ""
    # The controller forgets a job some minutes after its end; accounting, where there is any, does not.
    try:
        return (
            _said("sacct", "--jobs", job, "--allocations", "--noheader", "--format", "State").split() or ["UNKNOWN"]
        )[0]
    except (OSError, subprocess.CalledProcessError):
        return "UNKNOWN"


def account(job: str, state: str, out: Path, folder: Path, options: Options) -> int:
    """Append a row for each trial of the job that has none; returns how many these are."""
    why = f"the Slurm job {ENDED[state]} ({state})"
    plan = folder / "plan.csv"
    if plan.exists():
        planned = _rows(plan)
        known = {_name(row) for row in _rows(out)} if out.exists() else set()
        missing = [row for row in planned if _name(row) not in known]
    elif state == "COMPLETED":
        missing = []
    else:
        why += " before it had begun"
        loaded = files.find_all(options.suites)
        missing = [
            Row(
                suite=each.name, suite_version=each.suite.version, suite_digest=each.digest, model=model,
                precision=options.precision, mode=options.mode, nodes=options.nodes, session=f"slurm-{job}",
            )
            for each in loaded
            for model in each.suite.models
            if not options.models or model in options.models
        ]  # fmt: skip
    status = {"TIMEOUT": "timed_out", "CANCELLED": "interrupted", "OUT_OF_MEMORY": "out_of_memory"}.get(state, "failed")
    if missing:
        records.append(out, [replace(row, status=status, reason=why) for row in missing])
    return len(missing)


def _rows(path: Path) -> list[Row]:
    """Rows of a file, as far as they say which trial they are."""
    frame = load([path]).frame
    names = [name for name in COLUMNS if name in frame]
    kept = []
    for record in frame[names].to_dict("records"):
        values: dict[str, Any] = {str(name): value for name, value in record.items() if not pd.isna(value)}
        for name in ("trial", "processes", "nodes", "batch_size", "seed", "schema"):
            if name in values:
                values[name] = int(values[name])
        kept.append(Row(**values))
    return kept


def _name(row: Row) -> tuple[object, ...]:
    """What tells trials of one file apart."""
    return (row.suite, row.model, row.precision, row.batch_policy, row.device, row.processes, row.nodes, row.trial)


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
