"""The commands: parse, call, print. Heavy imports happen inside them, so that --help is instant."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import gpubench
from gpubench.errors import UserError

app = typer.Typer(
    name="gpubench",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="How fast does this card train, in FP32 and in mixed precision, and is it worth more than that one?",
    epilog="Start with `gpubench run --suite resnet --precision both --quick`, then `gpubench compare results/*.csv`.",
)
data_app = typer.Typer(no_args_is_help=True, help="Datasets and pretrained weights.")
app.add_typer(data_app, name="data")


def advised(command: Callable[..., int | None]) -> Callable[..., None]:
    """Turn a UserError into one line on stderr, and what the command returns into the exit code."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs)
        except UserError as error:
            typer.echo(f"gpubench: {error}", err=True)
            raise typer.Exit(error.exit_code) from None
        except (BrokenPipeError, SystemExit):  # `| head` has seen enough; rich makes a SystemExit of it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        raise typer.Exit(code or 0)

    return run


def _version(show: bool) -> None:
    if show:
        typer.echo(f"gpubench {gpubench.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """How fast does this card train, in FP32 and in mixed precision, and is it worth more than that one?"""


@app.command(
    epilog="""
Examples:

A first look, in minutes: `gpubench run --suite resnet --precision both --quick`

Sampled: 6 rounds, a verdict: `gpubench run --suite resnet --models resnet18,resnet50 --batch max`

Every epoch; again to resume: `gpubench run --suite resnet --full --set epochs=30 --out results/mine.csv`

Your own suite, two cards in turn: `gpubench run --suite my_suite.py --device cuda:0,cuda:1`

How it scales over four cards: `gpubench run --suite resnet --processes 1,2,4`

On each of two machines: `gpubench run --processes 8 --nodes 2 --rendezvous 10.0.0.1:29400`
"""
)
@advised
def run(
    suite: Annotated[
        list[str] | None, typer.Option(help="Built-in suite, or the path of a suite file. Repeatable.")
    ] = None,
    precision: Annotated[
        str, typer.Option(help="both, mixed, all, or names: fp32, tf32, fp16, bf16, joined by commas.")
    ] = "both",
    models: Annotated[str, typer.Option(help="Models joined by commas; all of the suite's by default.")] = "",
    batch: Annotated[
        str | None, typer.Option(help="max, fastest, or a number; each suite has its own default.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto, all, cpu, mps, xpu, or cuda:0,cuda:1 (each round over each in turn).")
    ] = "auto",
    processes: Annotated[
        str, typer.Option(help="Training processes on each machine, one per device; 1,2,4 runs each case with each.")
    ] = "1",
    nodes: Annotated[int, typer.Option(min=1, help="Machines; give each the same command.")] = 1,
    rendezvous: Annotated[
        str, typer.Option(help="HOST:PORT where the machines meet; the one that HOST is writes the rows.")
    ] = "",
    slurm: Annotated[
        str, typer.Option(help="Run as a Slurm job: partition=gpu,nodes=4,gpus_per_node=8,time=60 (minutes).")
    ] = "",
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Trials per case: 6 when sampled, else 1.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One trial per case, at most three measured steps.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Train every epoch instead of projecting.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for a new CSV, or a CSV file to write or resume.")] = Path(
        "results"
    ),
    data: Annotated[
        Path | None, typer.Option(help="Folder that holds the official dataset folders, or one of them.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Folder that holds pretrained weights.")] = None,
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="Made-up data of the same shapes; rows say so.")
    ] = False,
    memory_limit: Annotated[str | None, typer.Option(help="Most memory a trial may use: 11GiB, 2GB, 500MiB.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="Longest a trial may take: 90s, 10m, 1h30m.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first round; each round adds one.")] = 42,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value: a parameter of the suite (see `gpubench list`). Repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and measure nothing.")] = False,
) -> int:
    """Benchmark this machine: real training, one fresh process per trial, one CSV row per trial."""
    from gpubench.measuring.plan import Options
    from gpubench.measuring.run import run as run_plan

    if quick and full:
        raise UserError("--quick and --full ask for opposite things; give one of them")
    pairs = [text.partition("=") for text in settings or ()]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise UserError(f"--set {name}: write it as key=value")
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
        seed=seed,
        settings={name.strip(): value.strip() for name, _, value in pairs},
        dry_run=dry_run,
    )
    if slurm:
        from rich.console import Console

        from gpubench.measuring.slurm import parse_slurm, run_on_slurm

        wishes = parse_slurm(slurm)
        here = replace(options, nodes=wishes["nodes"])
        return run_on_slurm(
            wishes, without(sys.argv[1:], "--slurm", "--out"), here, Console(stderr=True, highlight=False)
        )
    return run_plan(options)


def without(arguments: Sequence[str], *options: str) -> list[str]:
    """The arguments but for these options and their values."""
    kept, skip = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if skip or name in options:
            skip = not skip and not equals
        else:
            kept.append(argument)
    return kept


@app.command(
    epilog="""
Examples:

Every card and precision, and what the ratios are worth: `gpubench compare results/*.csv`

Also as pictures: `gpubench compare mine.csv theirs.csv --by card --baseline "2080 Ti" --charts charts/`
"""
)
@advised
def compare(
    files: Annotated[list[Path], typer.Argument(help="CSV files of `gpubench run`.")],
    by: Annotated[
        str | None, typer.Option(help="Column to compare along: card, precision, torch, batch_size, ...")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Value of that column to divide by; the fastest by default.")
    ] = None,
    charts: Annotated[Path | None, typer.Option(help="Folder for charts (PNG and SVG).")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="With --beta: seconds of a message, for the scaling model.", min=0)
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Seconds of a byte, for the scaling model.", min=0)] = None,
    scale_to: Annotated[
        int | None, typer.Option(help="With --alpha and --beta: processes the scaling model goes to (2048, say).")
    ] = None,
) -> int:
    """Compare cards, precisions, or anything else the rows differ in."""
    from gpubench.comparing.compare import compare_files

    if (alpha is None) != (beta is None) or (scale_to is not None and alpha is None):
        raise UserError(
            "--alpha, --beta and --scale-to go together: the model needs both to go beyond what was measured"
        )
    alpha_beta = None if alpha is None or beta is None else (alpha, beta)
    return compare_files(files, by=by, baseline=baseline, charts=charts, alpha_beta=alpha_beta, to=scale_to)


@app.command(name="list", epilog="Example: `gpubench list` or `gpubench list --suite my_suite.py`")
@advised
def list_suites(
    suite: Annotated[list[str] | None, typer.Option(help="Only these suites. Repeatable.")] = None,
) -> None:
    """Suites, their models and their parameters."""
    from gpubench.suite import COMMON_PARAMS, built_in_names, find

    for name in suite or built_in_names():
        found = find(name)
        typer.echo(f"{found.name} (version {found.suite.version}): {found.summary}")
        typer.echo(f"  models: {', '.join(found.suite.models)}")
        typer.echo(f"  counts {found.suite.unit}" + (f", quality {found.suite.quality}" * bool(found.suite.quality)))
        for key, param in {**found.suite.params, **COMMON_PARAMS}.items():
            default = str(param.default).lower() if isinstance(param.default, bool) else param.default
            choices = f" ({'|'.join(map(str, param.choices))})" if param.choices else ""
            typer.echo(f"  --set {key}={default}{choices}  {param.help}")


@app.command(epilog="Example: `gpubench doctor` or `gpubench doctor --data ~/datasets`")
@advised
def doctor(
    data: Annotated[
        Path | None, typer.Option(help="Folder that holds the official dataset folders, or one of them.")
    ] = None,
) -> int:
    """What to fix before measuring: device, driver, torch build, data, disk. Exit code 4 if anything."""
    from gpubench.doctor import findings, nvidia_cards, surroundings
    from gpubench.measuring.process import describe

    marks = {"ok": "ok  ", "note": "note", "fix": "FIX "}
    found = findings(describe(), nvidia_cards()) + surroundings(data)
    for finding in found:
        typer.echo(f"{marks[finding.level]}  {finding.text}")
        if finding.advice:
            typer.echo(f"        {finding.advice}")
    return 4 if any(finding.level == "fix" for finding in found) else 0


@app.command(epilog="Example: `gpubench columns`")
@advised
def columns() -> None:
    """Every column of the CSV and what it means, as Markdown."""
    from gpubench.records import columns_markdown

    typer.echo(columns_markdown(), nl=False)


@data_app.command(epilog="Example: `gpubench data fetch cifar100`")
@advised
def fetch(
    names: Annotated[list[str], typer.Argument(help="Datasets or weights; see `gpubench data list`.")],
) -> None:
    """Download datasets or weights from their official address into the cache."""
    from gpubench import datasets

    for name in names:
        typer.echo(f"{name}: {datasets.fetch(name)}")


@data_app.command(name="list", epilog="Example: `gpubench data list`")
@advised
def list_data() -> None:
    """Datasets and weights, and whether they are here."""
    from gpubench import datasets

    cache = datasets.cache_folder()
    for name, dataset in datasets.DATASETS.items():
        here = datasets.is_complete(name, cache)
        typer.echo(f"{name}: {dataset.about}; {'in ' + str(cache) if here else 'not fetched'}")
    for name in datasets.names()[len(datasets.DATASETS) :]:
        path = cache / "weights" / datasets.weights_url(name).rpartition("/")[2]
        typer.echo(f"{name}: ImageNet weights of torchvision; {path if path.exists() else 'not fetched'}")


def parse_processes(text: str) -> tuple[int, ...]:
    """Numbers of processes in `4` or `1,2,4`; raises UserError."""
    counts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) for part in counts):
        raise UserError(f"--processes {text}: give a number above 0, or several joined by commas")
    return tuple(dict.fromkeys(map(int, counts)))


def parse_size(text: str) -> int:
    """Bytes of `11GiB`, `2GB`, `500MiB`; raises UserError."""
    units = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    number = text.strip().lower().rstrip("kmgib")
    unit = text.strip().lower()[len(number) :]
    try:
        size = float(number) * units[unit.strip() or "b"]
    except (KeyError, ValueError):
        raise UserError(f"--memory-limit {text}: write it as 11GiB, 2GB or 500MiB") from None
    if not 0 < size < float("inf"):
        raise UserError(f"--memory-limit {text}: give a size above 0")
    return int(size)


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `10m`, `1h30m`, `45`; raises UserError."""
    import re

    pattern = r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?"
    match = re.fullmatch(pattern, text.strip().lower(), re.ASCII)
    hours, minutes, seconds = match.groups(default="0") if match else ("0", "0", "0")
    total = float(hours) * 3600 + float(minutes) * 60 + float(seconds)
    if total <= 0:
        raise UserError(f"--time-limit {text}: write it as 90s, 10m or 1h30m")
    return total
