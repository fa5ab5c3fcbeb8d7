"""The commands: parse, call, print. Heavy imports happen inside them, so that --help is instant."""

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import gpubench
from gpubench.cli import completion
from gpubench.cli.arguments import parse_duration, parse_processes, parse_settings, parse_share, parse_size, without
from gpubench.errors import UserError

app = typer.Typer(
    name="gpubench",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="How fast does this card train, in FP32 and in mixed precision, and is it worth more than that one?",
    epilog="A first look: `gpubench run --quick --synthetic`. A measurement: `gpubench run`, then `gpubench compare"
    " results/*.csv`.",
)
data_app = typer.Typer(no_args_is_help=True, help="Datasets and pretrained weights.")
FLAG = ""
"""Stands where an option's value would: typer names a type there, and a flag takes no value."""
MEASURE, COMPARE, LOOK_AFTER = "Measure", "Compare and share", "Look after"
WHAT, HOW_LONG, WHERE, FILES = "What", "How long", "Where", "Files"
SIDES, SHOWN, DRAWN, MODEL = "What is compared", "What is shown", "Charts", "Scaling model"
app.add_typer(data_app, name="data", rich_help_panel=LOOK_AFTER)

Files = Annotated[
    list[Path], typer.Argument(help="CSV files, folders of them, or charts and reports that carry their rows.")
]

By = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Column to compare along, or two: card, precision, torch,card, batch_size, ...",
        autocompletion=completion.columns,
        rich_help_panel=SIDES,
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="VALUE",
        help="Value of that column that speedups are relative to: by default fp32, or the slowest.",
        rich_help_panel=SIDES,
    ),
]
MetricName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="seconds, rate, energy, value, cost, cost-per-epoch, memory, batch, accuracy, time-to-goal.",
        autocompletion=completion.one_of(*completion.METRICS),
        rich_help_panel=SIDES,
    ),
]
Price = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="TOML with dollars per hour, or price and years, of each card.",
        rich_help_panel=SIDES,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=VALUE",
        help="Only these rows; COLUMN!=VALUE leaves them out. Repeatable.",
        rich_help_panel=SIDES,
    ),
]
AllowMismatch = Annotated[
    bool,
    typer.Option(
        "--allow-mismatch",
        metavar=FLAG,
        help="Compare what is not alike too, without verdict; says where.",
        rich_help_panel=SIDES,
    ),
]


def advised(command: Callable[..., int | None]) -> Callable[..., None]:
    """Turn a UserError into one line on stderr, and what the command returns into the exit code."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs)
        except UserError as error:
            typer.echo(f"gpubench: {error}", err=True)
            raise typer.Exit(error.exit_code) from None
        except (BrokenPipeError, SystemExit) as error:  # `| head` has seen enough; rich makes a SystemExit of it
            if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            typer.echo("\nstopped", err=True)
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
        bool, typer.Option("--version", metavar=FLAG, callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """How fast does this card train, in FP32 and in mixed precision, and is it worth more than that one?"""


@app.command(
    rich_help_panel=MEASURE,
    epilog="""
Examples:

A first look, in minutes: `gpubench run --suite resnet --precision both --quick`

Sampled: 6 rounds, a verdict: `gpubench run --suite resnet --models resnet18,resnet50 --batch max`

Every epoch; again to resume: `gpubench run --suite resnet --full --set epochs=30 --out results/mine.csv`

Your own suite, two cards in turn: `gpubench run --suite my_suite.py --device cuda:0,cuda:1`

How it scales over four cards: `gpubench run --suite resnet --processes 1,2,4`

On each of two machines: `gpubench run --processes 8 --nodes 2 --rendezvous 10.0.0.1:29400`
""",
)
@advised
def run(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE.py",
            help="Built-in suite (`gpubench list` shows them), or the path of a suite file; resnet by default."
            " Repeatable.",
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
    seed: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Seed of the first round; each round adds one.", rich_help_panel=WHAT),
    ] = 42,
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
    from gpubench.commands.run import found
    from gpubench.plan.plan import Options
    from gpubench.runner.run import run as run_plan

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
        settings=parse_settings(settings or ()),
        tensorboard=tensorboard,
        dry_run=dry_run,
    )
    if slurm:
        from rich.console import Console

        from gpubench.runner.cluster.slurm import parse_slurm, run_on_slurm

        wishes = parse_slurm(slurm)
        here = replace(options, nodes=wishes["nodes"])
        return run_on_slurm(
            wishes, without(sys.argv[1:], "--slurm", "--out"), here, Console(stderr=True, highlight=False)
        )
    return run_plan(options, found=found)


@app.command(
    rich_help_panel=COMPARE,
    epilog="""
Examples:

Every card and precision, and what the ratios are worth: `gpubench compare results/*.csv`

Also as pictures: `gpubench compare mine.csv theirs.csv --by card --baseline "1080 Ti" --charts charts/`

The best card per dollar: `gpubench compare results/*.csv --metric value --price prices.toml`

As a gate, by its exit code: `gpubench compare *.csv --by torch --baseline 2.14 --fail-on-slower 5%`
""",
)
@advised
def compare(
    files: Files,
    by: By = None,
    baseline: Baseline = None,
    metric: MetricName = "seconds",
    price: Price = None,
    where: Where = None,
    table: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="terminal, markdown, csv or json.",
            autocompletion=completion.one_of(*completion.FORMATS),
            rich_help_panel=SHOWN,
        ),
    ] = "terminal",
    every: Annotated[
        bool,
        typer.Option(
            "--all", metavar=FLAG, help="Every case and comparison, not only what was found.", rich_help_panel=SHOWN
        ),
    ] = False,
    only: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="A suite, a study (pairs, roofline ...) or part of a card's name: this alone, with its tables.",
            rich_help_panel=SHOWN,
        ),
    ] = "",
    charts: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for charts of the first findings.", rich_help_panel=DRAWN)
    ] = None,
    all_charts: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for these and every other chart.", rich_help_panel=DRAWN)
    ] = None,
    chart_format: Annotated[
        str,
        typer.Option(metavar="NAMES", help="png, svg and pdf, joined by commas.", rich_help_panel=DRAWN),
    ] = "png,svg",
    theme: Annotated[
        str,
        typer.Option(
            metavar="light|dark",
            help="Colours of the charts.",
            autocompletion=completion.one_of("light", "dark"),
            rich_help_panel=DRAWN,
        ),
    ] = "light",
    unit: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="seconds, minutes or hours on the charts; by default what reads best.",
            autocompletion=completion.one_of("seconds", "minutes", "hours"),
            rich_help_panel=DRAWN,
        ),
    ] = "",
    allow_mismatch: AllowMismatch = False,
    fail_on_slower: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="5%: exit 1 if a case is surely this much slower than --baseline, 0 if surely none is.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="With --beta: what a message takes.", rich_help_panel=MODEL),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="With --alpha: what a byte takes.", rich_help_panel=MODEL),
    ] = None,
    scale_to: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="With --alpha and --beta: processes that the model goes to (2048, say).",
            rich_help_panel=MODEL,
        ),
    ] = None,
) -> int:
    """Compare cards, precisions, or anything else the rows differ in."""
    from gpubench.analysis.compare import Question
    from gpubench.commands.compare import Shape, compare_files

    if (alpha is None) != (beta is None) or (scale_to is not None and alpha is None):
        raise UserError(
            "--alpha, --beta and --scale-to go together: the model needs both to go beyond what was measured"
        )
    kinds = tuple(kind.strip() for kind in chart_format.split(","))
    if not kinds or not set(kinds) <= {"png", "svg", "pdf"}:
        raise UserError(f"--chart-format {chart_format}: there is png, svg and pdf")
    if theme not in {"light", "dark"}:
        raise UserError(f"--theme {theme}: there is light and dark")
    if unit not in {"", "seconds", "minutes", "hours"}:
        raise UserError(f"--unit {unit}: there is seconds, minutes and hours")
    return compare_files(
        files,
        Question(by, baseline, allow_mismatch, metric, price, tuple(where or ())),
        Shape(
            table=table,
            every=every,
            only=only,
            charts=all_charts or charts,
            every_chart=all_charts is not None,
            chart_kinds=kinds,
            theme=theme,
            unit=unit,
            alpha_beta=None if alpha is None or beta is None else (alpha, beta),
            scale_to=scale_to,
            fail_on_slower=parse_share("--fail-on-slower", fail_on_slower) if fail_on_slower else None,
        ),
    )


@app.command(rich_help_panel=COMPARE, epilog="Example: `gpubench report results/*.csv -o report.html`")
@advised
def report(
    files: Files,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The HTML file to write; without, a new report.html."),
    ] = None,
    by: By = None,
    baseline: Baseline = None,
    metric: MetricName = "seconds",
    price: Price = None,
    where: Where = None,
    allow_mismatch: AllowMismatch = False,
) -> None:
    """One HTML file that opens offline: tables, charts, the evidence of each verdict, and the rows to download."""
    from gpubench.analysis.compare import Question
    from gpubench.commands.report import write_report

    question = Question(by, baseline, allow_mismatch, metric, price, tuple(where or ()))
    typer.echo(write_report(files, question, out))


@app.command(
    rich_help_panel=COMPARE,
    epilog="""
Examples:

For Go's benchstat: `gpubench export results/*.csv --format benchstat --out all.txt`

An entry per full run: `gpubench export mine.csv --format dawnbench --out entries/`
""",
)
@advised
def export(
    files: Files,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="benchstat, pyperf, timm, mllog or dawnbench.",
            autocompletion=completion.one_of(*completion.EXPORTS),
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="File to write (dawnbench: folder); printed by default."),
    ] = None,
) -> None:
    """Write the ok rows in another tool's format."""
    from gpubench.interop import exports

    for line in exports.export(files, format_name, out):
        typer.echo(line)


@app.command(
    name="import",
    rich_help_panel=COMPARE,
    epilog="""
Examples:

timm's table: `gpubench import train.csv --format timm --card "RTX 3090" --precision fp16 --source URL --out timm.csv`

A DAWNBench entry: `gpubench import entry.json --format dawnbench --out dawnbench.csv`
""",
)
@advised
def import_(
    files: Annotated[list[Path], typer.Argument(help="Other people's files.")],
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="timm, lambda, dawnbench or notebooks.",
            autocompletion=completion.one_of(*completion.IMPORTS),
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="CSV to append the rows to.")],
    source: Annotated[str, typer.Option(metavar="TEXT", help="Where the figures come from, best with a commit.")] = "",
    card: Annotated[str, typer.Option(metavar="NAME", help="The card, where the files do not name it.")] = "",
    precision: Annotated[str, typer.Option(metavar="NAME", help="The precision, where the files do not name it.")] = "",
    data: Annotated[str, typer.Option(metavar="NAME", help="The dataset, where the files do not name it.")] = "",
    torch: Annotated[str, typer.Option(metavar="VERSION", help="The version of torch, where known.")] = "",
    params: Annotated[
        str, typer.Option(metavar="TEXT", help="What else belongs to the recipe: 'name=value name=value'.")
    ] = "",
    batches: Annotated[Path | None, typer.Option(metavar="FILE", help="Lambda's table of batch sizes.")] = None,
) -> None:
    """Append published figures of other tools as rows that keep their source and recipe."""
    from gpubench.interop.imports import Facts, import_files

    facts = Facts(source, card, precision, data, torch, params, batches)
    typer.echo(f"{out}: {import_files(files, format_name, facts, out)} row(s) added")


@app.command(rich_help_panel=COMPARE, epilog="Example: `gpubench submit results/mine.csv`; nothing is sent")
@advised
def submit(
    files: Annotated[list[Path], typer.Argument(help="CSV files of `gpubench run`.")],
) -> int:
    """Check files for a pull request to results/: what is missing. Exit code 4 if anything; sends nothing."""
    from gpubench.interop.submit import missing

    code = 0
    for path in files:
        found = missing(path)
        typer.echo(
            f"{path}: " + ("ready for a pull request (docs/contributing-results.md)" if not found else "not yet")
        )
        for line in found:
            typer.echo(f"  {line}")
        code = 4 if found else code
    return code


@app.command(
    name="list",
    rich_help_panel=MEASURE,
    epilog="Example: `gpubench list`, `gpubench list --suite resnet` or `gpubench list --suite my_suite.py`",
)
@advised
def list_suites(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE.py", help="Only this suite, in full. Repeatable.", autocompletion=completion.suites
        ),
    ] = None,
) -> None:
    """Suites with their models; one of them (--suite) with all its parameters."""
    from gpubench.commands.suites import listed

    typer.echo("\n".join(listed(suite or ())))


@app.command(
    rich_help_panel=LOOK_AFTER,
    epilog="""
Examples:

What to fix before measuring: `gpubench doctor`

Is my card healthy? `gpubench doctor mine.csv --against results`
""",
)
@advised
def doctor(
    files: Annotated[list[Path] | None, typer.Argument(help="CSV files measured here, for --against.")] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="CSV file, or folder of them, with reference rows of the same card. Repeatable."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with the official dataset folders, or one of them.")
    ] = None,
) -> int:
    """What to fix before measuring: card, driver, torch build, Apex, host, data, disk. Exit code 4 if anything.

    With files of measured rows it says instead whether the card is as fast as others of its kind.
    """
    from gpubench.commands.doctor import checks
    from gpubench.commands.health import health
    from gpubench.runner.progress import HintLine

    if bool(files) != bool(against):
        raise UserError("give both rows measured here and reference rows: gpubench doctor MINE.csv --against DIR")
    marks = {"ok": "ok  ", "note": "note", "fix": "FIX "}
    code = 0
    with HintLine() as line:
        for check in health(files, against) if files and against else checks(data, line.show):
            line.clear()
            print(f"{marks[check.level]}  {check.text}" + f"\n        {check.advice}" * bool(check.advice), flush=True)
            code = 4 if check.level == "fix" else code
    return code


@app.command(
    rich_help_panel=MEASURE,
    epilog="Example: `gpubench peak` or `gpubench peak --device cuda:0 --precision fp32,tf32,fp16`",
)
@advised
def peak(
    device: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="auto, all, cpu, mps, xpu, or cuda:0,cuda:1.", autocompletion=completion.devices
        ),
    ] = "auto",
    precision: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="all, both, mixed, or names joined by commas.",
            autocompletion=completion.precisions,
        ),
    ] = "all",
    threads: Annotated[int, typer.Option(min=0, metavar="N", help="CPU threads; 0 leaves torch's default.")] = 0,
) -> int:
    """The highest rate this device reaches, beside what its maker lists; kept for `run`. Exit code 4 if any fails."""
    from gpubench.commands.peak import run_peak

    return run_peak(device, precision, threads)


@app.command(rich_help_panel=LOOK_AFTER, epilog="Example: `gpubench selftest` or `gpubench selftest --device cuda:1`")
@advised
def selftest(
    device: Annotated[
        str,
        typer.Option(metavar="NAME", help="auto, cpu, mps, xpu or cuda:1.", autocompletion=completion.devices),
    ] = "auto",
) -> int:
    """Test the tool on this device: are its times and precisions right? Takes minutes. Exit code 1 if they are not."""
    from gpubench.commands.selftest import run_selftest

    return run_selftest(device)


@app.command(rich_help_panel=COMPARE, epilog="Example: `gpubench columns`")
@advised
def columns() -> None:
    """Every column of the CSV and what it means, as Markdown."""
    from gpubench.rows.row import columns_markdown

    typer.echo(columns_markdown(), nl=False)


@data_app.command(epilog="Example: `gpubench data fetch cifar100`")
@advised
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Datasets or weights; `gpubench data list` shows them.", autocompletion=completion.data_names
        ),
    ],
) -> None:
    """Download datasets or weights from their official address into the cache."""
    from gpubench.data import datasets

    for name in names:
        typer.echo(f"{name}: {datasets.fetch(name)}")


@data_app.command(epilog="Example: `gpubench data prepare imagenet --sizes 160,320 --data DIR`")
@advised
def prepare(
    name: Annotated[str, typer.Argument(help="imagenet.", autocompletion=completion.one_of("imagenet"))],
    sizes: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Pixels of the copies' shorter side, joined by commas.")
    ] = "160,320",
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the tree; else $GPUBENCH_DATA.")] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Processes that resize; all CPUs by default.", show_default=False),
    ] = None,
) -> int:
    """Make resized copies of a tree of images in the cache, once. Exit code 4 if an image cannot be used."""
    from gpubench.commands.prepare import prepare as prepare_copies

    return prepare_copies(name, sizes, data, processes)


@data_app.command(name="list", epilog="Example: `gpubench data list`")
@advised
def list_data() -> None:
    """Datasets and weights, and whether they are here."""
    from gpubench.data import datasets

    cache = datasets.cache_folder()
    for name, dataset in datasets.DATASETS.items():
        here = datasets.seen(name)
        typer.echo(f"{name}: {dataset.about}; {f'in {here}' if here else 'not fetched'}")
    for name, about in datasets.TREES.items():
        typer.echo(f"{name}: {about}; give it with --data DIR")
    for name in datasets.names()[len(datasets.DATASETS) :]:
        path = cache / "weights" / datasets.weights_url(name).rpartition("/")[2]
        typer.echo(f"{name}: ImageNet weights of torchvision; {path if path.exists() else 'not fetched'}")
