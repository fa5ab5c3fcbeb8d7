"""Trains the tries of a sweep, each an ordinary trial with its row; then the table and the command to run next."""

import math
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpubench.analysis.scaling import params_of
from gpubench.commands.run import without
from gpubench.commands.sweep.search import Search, kept, rungs
from gpubench.errors import UserError
from gpubench.plan.options import Options
from gpubench.plan.recipes import choose_models
from gpubench.printed import say
from gpubench.rows.read import load
from gpubench.rows.row import ABOUT, QUALITIES
from gpubench.runner import run
from gpubench.runner.run import SOME_FAILED
from gpubench.runner.signals import INTERRUPTED
from gpubench.show.terminal import WIDTH, table_lines, wrapped
from gpubench.studies.section import Column, Table
from gpubench.suite import files
from gpubench.suite.trial import TRAINED

SHOWN = {name: about.title or name for name, about in QUALITIES.items()}
"""Columns of the table that hold what a try has reached, and their headings."""
CASE = ["suite", "model", "precision", "device", "processes"]


@dataclass(frozen=True)
class Try:
    """One value, trained for so many epochs."""

    value: float
    epochs: int
    status: str
    reached: tuple[float | None, ...]
    """Medians over its trials of what SHOWN names."""

    def rank(self, quality: str) -> tuple[float, float, float]:
        """Sorts the longest first, of these the best by the suite's quality, then by loss; without a result last."""
        figures = dict(zip(SHOWN, self.reached, strict=True))
        sign = 1 if ABOUT[quality].better == "lower" else -1
        found, loss = figures[quality], figures["loss"]
        return -self.epochs, math.inf if found is None else sign * found, math.inf if loss is None else loss


def sweep(options: Options, wish: Search, arguments: Sequence[str]) -> int:
    """Search `wish`, print what each try reached and the command to run next; returns the exit code.

    All rows are in one file. The same command with that file as --out goes on where a sweep was stopped. Raises
    UserError where there is more to it than one case, or the suite has no such parameter or nothing to be shorter by.
    """
    quality, epochs = settled(options, wish)
    say(*wrapped(outlook(wish, rungs(epochs))), err=True)
    options = replace(options, mode="full", judged=True, soak=False, peaks=False)  # nobody asks how fast they are
    values = wish.coarse()
    for length in rungs(epochs):
        code, options = trained(options, wish.name, values, length)
        if code == INTERRUPTED or options.dry_run:
            return code
        values = kept(ranked(options.out, wish.name, quality, length))
        if not values:
            say(f"no try of {length} epochs has a result; the rows of {options.out} say why", err=True)
            return SOME_FAILED
    code, options = trained(options, wish.name, wish.finer(values[0]), epochs)
    if code == INTERRUPTED:
        return code
    tries = sorted(read(options.out, wish.name), key=lambda each: each.rank(quality))
    best = tries[0].value
    say("", *table_lines(table_of(wish.name, tries), WIDTH), "")
    if best in (wish.coarse()[0], wish.coarse()[-1]):
        say(f"{wish.name}={best:g} is an end of the range: a wider one may hold a better value")
    say(f"next: {command(arguments, wish.name, best, seed=options.seed + options.rounds)}")
    return 0


def settled(options: Options, wish: Search) -> tuple[str, int]:
    """The quality that the suite is judged by, and the epochs of the whole run; raises UserError as `sweep` says."""
    suites = files.find_all(options.suites)
    suite, models = suites[0], choose_models(suites[0], options.models, suites)
    lists = (suites, models, options.processes, options.precision.split(","), options.device.split(","))
    if any(len(each) > 1 for each in lists) or options.precision in ("both", "all") or options.device == "all":
        raise UserError("--sweep searches one case: give one --suite, --models, --precision, --device and --processes")
    if options.synthetic:
        raise UserError("--sweep judges what was learnt, and made-up images teach nothing: leave out --synthetic")
    params = suite.resolve_params({**options.settings, wish.name: f"{wish.low:g}"}, models[0])
    if not isinstance(params[wish.name], float):
        raise UserError(f"--sweep {wish.name}: only what may have a fraction is searched, a learning rate say")
    if "epochs" not in params:
        raise UserError("--sweep trains fewer epochs first: it needs a suite with the parameter epochs")
    if not params["epochs"]:
        raise UserError("--sweep: give --set epochs=N, the epochs of the whole run that the setting is for")
    quality = suite.suite.quality
    return quality if quality in QUALITIES else "loss", int(params["epochs"])


def outlook(wish: Search, lengths: Sequence[int]) -> str:
    """What will be trained, in a sentence."""
    values, steps = wish.coarse(), []
    for length in lengths:
        steps.append(f"{len(values)} for {length} epoch{'s' * (length > 1)}")
        values = kept(values)
    return f"sweep of {wish.name}: {', '.join(steps)}; then as long, values between the best and its neighbours"


def trained(options: Options, name: str, values: Sequence[float], epochs: int) -> tuple[int, Options]:
    """Train each value for so many epochs; the run's exit code, and the options with the file of the rows."""
    written: list[Path] = []

    def found(path: Path, sessions: Collection[str]) -> Sequence[str]:
        written.append(path)
        return ()

    tries = tuple({name: f"{value:g}", "epochs": str(epochs)} for value in values)
    code = run.run(replace(options, tries=tries), found=found)
    return code, replace(options, out=written[0]) if written else options


def read(path: Path, name: str) -> list[Try]:
    """The tries in a file of rows; raises UserError where it holds something else."""
    frame = load([path]).frame
    params = [params_of(text) for text in frame["params"]]
    if len(frame.groupby(CASE, dropna=False)) > 1 or not all(name in each for each in params):
        raise UserError(f"--out {path} holds other cases beside those of the sweep; give it a file of its own")
    frame = frame.assign(value=[float(each[name]) for each in params], length=[int(each["epochs"]) for each in params])
    tries = []
    for _, rows in frame.groupby(["value", "length"]):
        value, epochs = float(rows["value"].iloc[0]), int(rows["length"].iloc[0])
        done = rows[rows["status"].isin(TRAINED)]
        medians = [done[column].median() for column in SHOWN]
        reached = tuple(None if math.isnan(each) else float(each) for each in medians)
        tries.append(Try(value, epochs, str(rows["status"].iloc[-1]), reached))
    return tries


def ranked(path: Path, name: str, quality: str, epochs: int) -> list[float]:
    """The values that were trained for so many epochs and have a result, the best first."""
    tries = [each for each in read(path, name) if each.epochs == epochs and set(each.reached) != {None}]
    return [each.value for each in sorted(tries, key=lambda each: each.rank(quality))]


def table_of(name: str, tries: Sequence[Try]) -> Table:
    """A line for each try."""
    figures = [Column(heading, ABOUT[column].unit or column, places=2) for column, heading in SHOWN.items()]
    columns = (Column(name), Column("epochs", "count"), *figures, Column("status"))
    return Table("tries", columns, tuple((f"{t.value:g}", t.epochs, *t.reached, t.status) for t in tries))


def command(arguments: Sequence[str], name: str, value: float, *, seed: int) -> str:
    """The whole run with the value that was found.

    On another seed, because the best of several tries owes something to its own.
    """
    rest = without(arguments, "--sweep", "--out", "--seed")
    full = [] if "--full" in rest else ["--full"]
    return shlex.join(["gpubench", *rest, *full, "--seed", str(seed), "--set", f"{name}={value:g}"])
