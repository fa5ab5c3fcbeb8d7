"""`gpubench run`: its options, as one value that the runner takes."""

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli import completion
from gpubench.cli.arguments import (
    parse_duration,
    parse_processes,
    parse_session,
    parse_settings,
    parse_share,
    parse_size,
)
from gpubench.cli.options import FILES, FLAG, HOW_LONG, WHAT, WHERE
from gpubench.errors import UserError

RUN_EXAMPLES = """
Examples:

A first look, in minutes: `gpubench run --suite resnet --precision both --quick`

Sampled: 6 rounds, a verdict: `gpubench run --suite resnet --models resnet18,resnet50 --batch max`

Every epoch; again to resume: `gpubench run --suite resnet --full --set epochs=30 --out results/mine.csv`

Your own suite, two cards in turn: `gpubench run --suite my_suite.py --device cuda:0,cuda:1`

Which learning rate: `gpubench run --suite largebatch --precision mixed --sweep lr=1:64:log --out sweeps/lr.csv`

How it scales over four cards: `gpubench run --suite resnet --processes 1,2,4`

On each of two machines: `gpubench run --processes 8 --nodes 2 --rendezvous 10.0.0.1:29400`
"""


def run(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|PATH",
            help="Built-in suite (`gpubench list` shows them), or the path of a suite, a file or a folder; resnet by"
            " default. Repeatable.",
            autocompletion=completion.suites,
            rich_help_panel=WHAT,
        ),
    ] = None,
    models: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Models joined by commas; each suite has its usual ones.",
            autocompletion=completion.models,
            rich_help_panel=WHAT,
        ),
    ] = "",
    precision: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="both (fp32 and the mixed precision of the device), mixed, all, or names joined by commas: fp32,"
            " tf32, fp16, bf16, fp16-master, fp16-pure.",
            autocompletion=completion.precisions,
            rich_help_panel=WHAT,
        ),
    ] = "both",
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="max|fastest|N",
            help="Samples of one process in a step. By default max for resnet and scaling on an accelerator, else the"
            " suite's own number.",
            autocompletion=completion.one_of("max", "fastest"),
            rich_help_panel=WHAT,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A parameter of the suite (`gpubench list --suite NAME` shows them). Repeatable.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=LOW:HIGH:log",
            help="Search a parameter from short runs to whole ones (docs/running.md); says what to run next.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Seed of the first round; each round adds one.", rich_help_panel=WHAT),
    ] = 42,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For runs that take turns, of two versions say: with one name, `compare` takes them for one session.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            metavar=FLAG,
            help="A first look: one trial per case, three measured steps at most.",
            rich_help_panel=HOW_LONG,
        ),
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", metavar=FLAG, help="Train every epoch instead of projecting.", rich_help_panel=HOW_LONG),
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Trials per case: 6 by default, 1 with --quick or --full.",
            show_default=False,
            rich_help_panel=HOW_LONG,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="1%: add rounds after the sixth until each case's 95% interval is within 1% of its median.",
            rich_help_panel=HOW_LONG,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --until: add no round that would end later than this (90s, 2h); 20m by default.",
            rich_help_panel=HOW_LONG,
        ),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End a trial that takes longer: 90s, 10m, 1h30m. 30m by default, none with --full.",
            rich_help_panel=HOW_LONG,
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="auto, all, cpu, mps, xpu, or cuda:0,cuda:1 (each round runs on each in turn).",
            autocompletion=completion.devices,
            rich_help_panel=WHERE,
        ),
    ] = "auto",
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Most memory a trial may use: 11GiB, 2GB, 500MiB.", rich_help_panel=WHERE),
    ] = None,
    processes: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Training processes on each machine, one per device; 1,2,4 runs each case with each number.",
            rich_help_panel=WHERE,
        ),
    ] = "1",
    nodes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Machines; give each the same command.", rich_help_panel=WHERE)
    ] = 1,
    rendezvous: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the machines meet. HOST is the machine that leads and writes the rows.",
            rich_help_panel=WHERE,
        ),
    ] = "",
    slurm: Annotated[
        str,
        typer.Option(
            metavar="WISHES",
            help="Run as a Slurm job: partition=gpu,nodes=4,time=60 (docs/clusters.md).",
            rich_help_panel=WHERE,
        ),
    ] = "",
    out: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Folder for a new CSV file (with --quick in its folder quick), or a CSV file to write or resume.",
            rich_help_panel=FILES,
        ),
    ] = Path("results"),
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with the official dataset folders, or one of them. Else $GPUBENCH_DATA, else downloaded.",
            rich_help_panel=FILES,
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with pretrained weights.", rich_help_panel=FILES)
    ] = None,
    synthetic: Annotated[
        bool,
        typer.Option(
            "--synthetic", metavar=FLAG, help="Made-up data of the same shapes; rows say so.", rich_help_panel=FILES
        ),
    ] = False,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for TensorBoard events, of suites that write them (imagenet).",
            rich_help_panel=FILES,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", metavar=FLAG, help="Print the plan, its time and what is missing; measure nothing."),
    ] = False,
) -> int:
    """Benchmark this machine: real training, one fresh process per trial, one CSV row per trial."""
    from gpubench.commands.run import run_here_or_on_slurm
    from gpubench.runner.options import Options

    if quick and full:
        raise UserError("--quick and --full ask for opposite things; give one of them")
    if until and (quick or repeats):
        raise UserError(f"--until chooses the number of rounds; leave out {'--quick' if quick else '--repeats'}")
    if tensorboard and not importlib.util.find_spec("tensorboard"):
        raise UserError("--tensorboard needs TensorBoard: pip install 'gpubench-train[tensorboard]'")
    if budget and not until:
        raise UserError("--budget is for --until 1%, which adds rounds; --time-limit limits a trial")
    options = Options(
        suites=tuple(suite or ("resnet",)),
        precision=precision,
        models=tuple(model for model in models.split(",") if model),
        batch=batch,
        device=device,
        processes=parse_processes(processes),
        nodes=nodes,
        rendezvous=rendezvous,
        repeats=repeats,
        mode="quick" if quick else "full" if full else "sampled",
        out=out,
        data=data,
        weights=weights,
        synthetic=synthetic,
        memory_limit_bytes=parse_size(memory_limit) if memory_limit else None,
        time_limit_seconds=parse_duration(time_limit) if time_limit else None,
        until=parse_share("--until", until) if until else None,
        budget_seconds=parse_duration(budget or "20m", "--budget") if until else None,
        seed=seed,
        session=parse_session(session) if session else "",
        settings=parse_settings(settings or ()),
        tensorboard=tensorboard,
        dry_run=dry_run,
    )
    if sweep:
        from gpubench.commands.sweep.search import parse_search
        from gpubench.commands.sweep.sweep import sweep as search

        if len(sweep) > 1:
            raise UserError("--sweep searches one parameter; search a second with the first one's value as --set")
        if slurm:
            raise UserError("--sweep runs where it is started: leave out --slurm, or write a job of your own")
        return search(options, parse_search(sweep[0]), sys.argv[1:])
    return run_here_or_on_slurm(options, slurm, sys.argv[1:])
