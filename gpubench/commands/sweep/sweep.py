"""Trains the tries of a sweep, each an ordinary trial with its row; then the table and the command to run next."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpubench.analysis.scaling import params_of
from gpubench.commands.run import without
from gpubench.commands.sweep.search import Search, kept, rungs
from gpubench.errors import UserError
from gpubench.printed import say
from gpubench.rows.read import load
from gpubench.rows.row import ABOUT, QUALITIES
from gpubench.runner import run
from gpubench.runner.options import Options
from gpubench.runner.recipes import choose_models
from gpubench.runner.run import SOME_FAILED
from gpubench.runner.signals import INTERRUPTED
from gpubench.show.terminal import WIDTH, table_lines, wrapped
from gpubench.studies.section import Column, Table
from gpubench.suite import files
from gpubench.suite.trial import TRAINED

SHOWN = {name: about.title or name for name, about in QUALITIES.items()}
"""Columns of the table that hold what a try has reached, and their headings."""
CASE = ["suite", "model", "precision", "device", "processes"]
Pair = tuple[float, int]
"""A value and the epochs that it was trained for."""


@dataclass(frozen=True)
class Try:
    """One value, trained for so many epochs."""

    value: float
    epochs: int
    status: str
    """Of the first of its trials that has no result, else of the first."""
    reached: tuple[float | None, ...]
    """Medians over its trials of what SHOWN names; None without a result of each trial."""

    def rank(self, quality: str) -> tuple[int, float]:
        """Sorts the longest first, of these the best by the suite's quality; without a result last."""
        found = self.found(quality)
        sign = 1 if ABOUT[quality].better == "lower" else -1
        return -self.epochs, math.inf if found is None else sign * found

    def found(self, quality: str) -> float | None:
        """What it reached of the suite's quality."""
        return dict(zip(SHOWN, self.reached, strict=True))[quality]


def sweep(options: Options, wish: Search, arguments: Sequence[str]) -> int:
    """Search `wish`, print what each try reached and the command to run next; returns the exit code.

    All rows are in one file, and the same command goes on where a sweep was stopped. Raises UserError where there is
    more to it than one case, or the suite has no such parameter, no quality or nothing to be shorter by.
    """
    model, quality, epochs = settled(options, wish)
    if options.out.is_file() and options.out.stat().st_size:
        read(options.out, wish.name, model)  # a file of something else is refused before anything trains
    say(*wrapped(outlook(wish, rungs(epochs))), err=True)
    options = replace(options, mode="full", judged=True, soak=False, peaks=False)  # nobody asks how fast they are
    asked: list[Pair] = []
    tries: list[Try] = []
    values, best = wish.coarse(), 0.0
    lengths = iter(rungs(epochs))
    length = next(lengths)
    while values:
        code = trained(options, wish.name, values, length)
        if code == INTERRUPTED or options.dry_run:
            return code
        asked += [(value, length) for value in values]
        tries = [each for each in read(options.out, wish.name, model) if (each.value, each.epochs) in asked]
        tries.sort(key=lambda each: each.rank(quality))
        ranking = [each.value for each in tries if each.epochs == length and each.found(quality) is not None]
        if not ranking:
            say(f"no try at {length} of {epochs} epochs has a result; the rows of {options.out} say why", err=True)
            return SOME_FAILED
        best = ranking[0]
        if length < epochs:
            values, length = kept(ranking, len(values)), next(lengths)
        else:  # uphill from the best whole run: a short one may have pointed elsewhere
            values = [value for value in wish.neighbours(best) if (value, epochs) not in asked]
    say("", *table_lines(table_of(wish.name, tries), WIDTH), "")
    if best in (wish.coarse()[0], wish.coarse()[-1]):
        say(f"{wish.name}={best:g} is an end of the range: a wider one may hold a better value")
    say(f"next: {command(arguments, wish.name, best, seed=options.seed + options.rounds)}")
    return 0


def settled(options: Options, wish: Search) -> tuple[str, str, int]:
    """The model, the quality it is judged by and the epochs of the whole run; raises UserError as `sweep` says."""
    suites = files.find_all(options.suites)
    suite, models = suites[0], choose_models(suites[0], options.models, suites)
    lists = (suites, models, options.processes, options.precision.split(","), options.device.split(","))
    if any(len(each) > 1 for each in lists) or options.precision in ("both", "all") or options.device == "all":
        raise UserError("--sweep searches one case: give one --suite, --models, --precision, --device and --processes")
    if options.mode == "quick" or options.until or options.nodes > 1 or options.tensorboard:
        raise UserError("--sweep runs to the end on one machine: leave out --quick, --until, --nodes, --tensorboard")
    if options.synthetic:
        raise UserError("--sweep judges what was learnt, and made-up data teach nothing: leave out --synthetic")
    if options.out.suffix != ".csv" and not options.dry_run:
        raise UserError("--sweep: give --out FILE.csv, a file of its own, so that the same command can go on")
    if wish.name in options.settings:
        raise UserError(f"--set {wish.name}: --sweep searches it; leave one of them out")
    if wish.name not in suite.suite.params:
        raise UserError(f"--sweep {wish.name}: suite {suite.name} has no such parameter; `gpubench list` shows them")
    params = suite.resolve_params(options.settings, models[0])
    if not isinstance(params[wish.name], float):
        raise UserError(f"--sweep {wish.name}: only what may have a fraction is searched, a learning rate say")
    if "epochs" not in params:
        raise UserError("--sweep trains fewer epochs first: it needs a suite with the parameter epochs")
    if not params["epochs"]:
        raise UserError("--sweep: give --set epochs=N, the epochs of the whole run that the setting is for")
    if suite.suite.quality not in QUALITIES:
        raise UserError(
            f"--sweep ranks what was learnt, and the suite {suite.name} does not say by what: give its Suite a"
            f" quality ({', '.join(QUALITIES)}; docs/adding-a-suite.md)"
        )
    return models[0], suite.suite.quality, int(params["epochs"])


def outlook(wish: Search, lengths: Sequence[int]) -> str:
    """What will be trained, in a sentence."""
    values, steps = wish.coarse(), []
    for length in lengths:
        steps.append(f"{len(values)} for {length} epoch{'s' * (length > 1)}")
        values = kept(values, len(values))
    return f"sweep of {wish.name}: {', '.join(steps)}; then values beside the best, as long as one is better"


def trained(options: Options, name: str, values: Sequence[float], epochs: int) -> int:
    """Train each value for so many epochs; the run's exit code."""
    return run.run(replace(options, tries=tuple({name: f"{value:g}", "epochs": str(epochs)} for value in values)))


def read(path: Path, name: str, model: str) -> list[Try]:
    """The tries in a file of rows; raises UserError where it holds something else."""
    frame = load([path]).frame
    params = [params_of(text) for text in frame["params"]]
    one = len(frame.groupby(CASE, dropna=False)) == 1 and set(frame["model"]) == {model}
    if not one or not all(name in each and "epochs" in each for each in params):
        raise UserError(f"--out {path} holds other cases beside those of the sweep; give it a file of its own")
    frame = frame.assign(value=[float(each[name]) for each in params], length=[int(each["epochs"]) for each in params])
    tries = []
    for _, every in frame.groupby(["value", "length"]):
        rows = every.drop_duplicates("trial", keep="last")  # one that failed may have been tried again
        lacking = rows[~rows["status"].isin(TRAINED)]
        medians = [math.nan if len(lacking) else rows[column].median() for column in SHOWN]
        reached = tuple(None if math.isnan(each) else float(each) for each in medians)
        first = (lacking if len(lacking) else rows).iloc[0]
        tries.append(Try(float(first["value"]), int(first["length"]), str(first["status"]), reached))
    return tries


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
