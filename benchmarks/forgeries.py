"""How many forged files `gpubench submit` calls ready.

Real rows of results/ are copied, scaled, swapped, blanked, renamed, shuffled and rounded.

    python benchmarks/forgeries.py --count 500                    # edits of rows as gpubench wrote them
    python benchmarks/forgeries.py --count 500 --with-digest      # by somebody who computes the digest anew
    python benchmarks/forgeries.py --count 500 --seed 1234        # the same forgeries again

The files are those of our own runs in results/ that `submit` calls ready, in today's columns and with digests. Each
forgery changes one of them and is submitted. The seed is drawn unless it is given. Exit code 1 where more than 2% pass.
"""

import argparse
import json
import math
import secrets
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import pandas as pd

from gpubench.rows.column import DIGITS
from gpubench.rows.digest import in_our_columns
from gpubench.rows.read import load
from gpubench.rows.row import ABOUT, COLUMNS, DIGEST, INTEGERS, NUMBERS, digest_of
from gpubench.rows.spreadsheet import csv_text
from gpubench.submit.check import reports
from gpubench.submit.together import CASE

RESULTS = Path(__file__).parents[1] / "results"
MOST_THAT_MAY_PASS = 0.02
Line = dict[str, str]
"""A row as text, by column."""
Forgery = Callable[[list[Line], Random], str]
"""Changes rows where they stand; says what it did."""

OF_A_TRIAL = ("measurement", "record", "telemetry", "peak", "quality")
"""Where the columns come from that say what came of a trial."""
FIGURES = [n for n in NUMBERS if ABOUT[n].source.startswith(OF_A_TRIAL) and n != "threads"] + ["batch_size"]
TIMES = ("seconds", "seconds_low", "seconds_high", "train_seconds", "valid_seconds", "startup_seconds", "setup_seconds")
RATES = ("samples_per_second", "resident_samples_per_second", "mean_power_watts")


def real_files() -> Iterator[tuple[str, list[Line]]]:
    """The rows of each file of our own that is ready, in today's columns, with digests."""
    for path in sorted(RESULTS.glob("*.csv")):
        loaded = load([path], keep=True)
        if not reports([path])[path].missing and not loaded.frame["source"].any():
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
            rows = [in_our_columns(tuple(table), list(cells)) for cells in table.itertuples(index=False)]
            yield path.name, [with_digest(dict(zip(COLUMNS, cells, strict=True))) for cells in rows]


def with_digest(line: Line) -> Line:
    """The row with the digest of its values."""
    return {**line, DIGEST: digest_of([line[name] for name in COLUMNS[:-2]])}


# What a forger does to a number.


def factor(rng: Random) -> float:
    """One that makes a figure better or worse by 3% to a factor of 2."""
    return math.exp(rng.choice((-1, 1)) * rng.uniform(math.log(1.03), math.log(2)))


def scaled(line: Line, name: str, by: float) -> str:
    """The cell times a factor, written as gpubench writes it."""
    value = float(line[name]) * by
    return str(round(value)) if name in INTEGERS else repr(float(f"{value:.{DIGITS}g}"))


def with_laps(line: Line, change: Callable[[list[list[object]]], object]) -> None:
    """Change the laps of a row in place; a trial that failed has none."""
    if not line["laps"]:
        return
    laps = json.loads(line["laps"])
    change(laps)
    line["laps"] = json.dumps(laps, separators=(",", ":"))


def all_times(line: Line, by: float) -> None:
    """Every time of a row times a factor, and every rate by it."""
    for name in TIMES:
        line[name] = line[name] and scaled(line, name, by)
    for name in RATES:
        line[name] = line[name] and scaled(line, name, 1 / by)

    def slower(laps: list[list[object]]) -> None:
        for lap in laps:
            lap[5:] = [round(float(str(each)) * by, 6) for each in lap[5:]]

    with_laps(line, slower)


def case_of(lines: Sequence[Line], rng: Random) -> list[Line]:
    """The rows of a case, drawn."""
    one = rng.choice(lines)
    return [line for line in lines if all(line[name] == one[name] for name in CASE)]


def a_figure(lines: Sequence[Line], rng: Random, least: int = 1) -> str:
    """A column of figures that so many of the rows have and that is not 0 in them."""
    return rng.choice([n for n in FIGURES if sum(bool(line[n]) and float(line[n]) != 0 for line in lines) >= least])


# The forgeries, by kind. Each changes something: what leaves a file as it was is drawn anew.


def copied_as_trials(lines: list[Line], rng: Random) -> str:
    """One row becomes all trials of its case."""
    own = case_of(lines, rng)
    good = dict(rng.choice(own))
    for line in own:
        line |= {**good, **{name: line[name] for name in ("trial", "seed", "started")}}
    return "a row as all trials of its case"


def copied_beside(lines: list[Line], rng: Random) -> str:
    """A row once more, as one trial more."""
    good = rng.choice([line for line in lines if line["laps"]])  # a copy of a failed trial claims nothing
    lines.append({**good, "trial": str(len(lines)), "seed": str(int(good["seed"]) + len(lines))})
    return "a row once more"


def copied_and_scaled(lines: list[Line], rng: Random) -> str:
    """A row once more, each time of it by a factor."""
    copied_beside(lines, rng)
    all_times(lines[-1], factor(rng))
    lines[-1]["started"] = max(line["started"] for line in lines)[:11] + "23:59:59+00:00"
    return "a row once more, all its times by a factor"


def scaled_figure(lines: list[Line], rng: Random) -> str:
    """A figure of a row."""
    line = rng.choice(lines)
    name = a_figure([line], rng)
    line[name] = scaled(line, name, factor(rng))
    return f"a figure of a row: {name}"


def scaled_column(lines: list[Line], rng: Random) -> str:
    """A column of a case."""
    own, by = case_of(lines, rng), factor(rng)
    name = a_figure(own, rng)
    for line in own:
        line[name] = line[name] and scaled(line, name, by)
    return f"a column of a case: {name}"


def scaled_times(lines: list[Line], rng: Random) -> str:
    """All times of a row, of a case or of the file."""
    of, own = rng.choice([("row", [rng.choice(lines)]), ("case", case_of(lines, rng)), ("file", lines)])
    by = factor(rng)
    for line in own:
        all_times(line, by)
    return f"all times of a {of}"


def swapped(lines: list[Line], rng: Random) -> str:
    """A figure between two rows, of one case or of any."""
    of, own = rng.choice([("of a case", case_of(lines, rng)), ("of the file", lines)])
    one, other = rng.sample(own, 2) if len(own) > 1 else rng.sample(lines, 2)
    name = rng.choice([n for n in (*FIGURES, "laps") if one[n] != other[n]])
    one[name], other[name] = other[name], one[name]
    return f"a figure of two rows {of}: {name}"


def blanked_cell(lines: list[Line], rng: Random) -> str:
    """A cell."""
    line = rng.choice(lines)
    name = rng.choice([n for n in COLUMNS[1:-2] if line[n]])
    line[name] = ""
    return f"a cell: {name}"


def blanked_column(lines: list[Line], rng: Random) -> str:
    """A column of the file."""
    name = rng.choice([n for n in COLUMNS[1:-2] if any(line[n] for line in lines)])
    for line in lines:
        line[name] = ""
    return f"a column: {name}"


def renamed_card(lines: list[Line], rng: Random) -> str:
    """The card, and where the forger is careful the CPU; the true rows stand beside it, or do not."""
    careful, beside = rng.random() < 0.5, rng.random() < 0.5
    name = "AMD EPYC 9755 128-Core Processor" if careful else "NVIDIA GeForce RTX 5090"
    new = [{**line, "card": name, **({"cpu": name} if careful else {})} for line in lines]
    lines[:] = [*lines, *new] if beside else new
    return f"the card{' and the CPU' if careful else ''}{', beside the true rows' if beside else ''}"


def renamed_precision(lines: list[Line], rng: Random) -> str:
    """The precision of a case."""
    own = case_of(lines, rng)
    name = rng.choice([each for each in ("fp32", "bf16", "fp16", "tf32") if each != own[0]["precision"]])
    for line in own:
        line["precision"] = name
    return "the precision of a case"


def renamed_model(lines: list[Line], rng: Random) -> str:
    """The model of a case becomes another of the file, or resnet50."""
    own = case_of(lines, rng)
    others = sorted({line["model"] for line in lines} - {own[0]["model"]})
    name = rng.choice([*others, "resnet50"])
    for line in own:
        line["model"] = name
    return f"the model of a case, as {'another of the file' if name in others else 'resnet50'}"


def shuffled_laps(lines: list[Line], rng: Random) -> str:
    """The order of a row's laps."""
    with_laps(rng.choice(lines), rng.shuffle)
    return "laps"


def shuffled_seconds(lines: list[Line], rng: Random) -> str:
    """The seconds of a row's laps among them."""

    def mix(laps: list[list[object]]) -> None:
        seconds = [lap[5:] for lap in laps]
        rng.shuffle(seconds)
        for lap, own in zip(laps, seconds, strict=True):
            lap[5:] = own

    with_laps(rng.choice(lines), mix)
    return "seconds of laps"


def rounded_figures(lines: list[Line], rng: Random) -> str:
    """A figure, a row or a column, to two to four digits."""
    digits, line = rng.randint(2, 4), rng.choice(lines)
    of = rng.choice(("figure", "row", "column"))
    names = [a_figure([line], rng)] if of == "figure" else [n for n in FIGURES if line[n]]
    names = [a_figure(lines, rng)] if of == "column" else names
    for each in lines if of == "column" else [line]:
        for name in names:
            if each[name] and ABOUT[name].digits:
                each[name] = repr(float(f"{float(each[name]):.{digits}g}"))
    return f"a {of}" + (f": {names[0]}" if of != "row" else "")


def rounded_laps(lines: list[Line], rng: Random) -> str:
    """A row's laps to a hundredth of a second."""

    def coarse(laps: list[list[object]]) -> None:
        for lap in laps:
            lap[5:] = [round(float(str(each)), 2) for each in lap[5:]]

    with_laps(rng.choice(lines), coarse)
    return "laps"


KINDS: Mapping[str, Sequence[Forgery]] = {
    "copied": (copied_as_trials, copied_beside, copied_and_scaled),
    "scaled": (scaled_figure, scaled_column, scaled_times),
    "swapped": (swapped,),
    "blanked": (blanked_cell, blanked_column),
    "renamed": (renamed_card, renamed_precision, renamed_model),
    "shuffled": (shuffled_laps, shuffled_seconds),
    "rounded": (rounded_figures, rounded_laps),
}


def forgeries(
    count: int, seed: int, *, digest: bool, files: Sequence[tuple[str, list[Line]]]
) -> Iterator[tuple[str, str, list[Line]]]:
    """(kind, what was done, rows) of so many forgeries, the kinds in turn."""
    rng = Random(seed)
    made = 0
    while made < count:
        kind = list(KINDS)[made % len(KINDS)]
        name, true = rng.choice(files)
        lines = [dict(line) for line in true]
        done = rng.choice(KINDS[kind])(lines, rng)
        if lines == true:
            continue
        made += 1
        yield kind, f"{name}: {done}", [with_digest(line) for line in lines] if digest else lines


def passes(lines: Sequence[Line], folder: Path) -> bool:
    """Whether `submit` calls a file of these rows ready."""
    path = folder / "forged.csv"
    path.write_text(csv_text(COLUMNS, [[line[name] for name in COLUMNS] for line in lines]))
    return not reports([path])[path].missing


def run(count: int, seed: int, *, digest: bool) -> tuple[Counter[str], dict[str, list[str]]]:
    """How many there were by kind, and what was done to those that passed; raises where a true file does not pass."""
    made: Counter[str] = Counter()
    passed: dict[str, list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        files = list(real_files())
        for name, lines in files:
            if not passes(lines, Path(scratch)):
                raise SystemExit(f"{name}: `submit` refuses the true rows")
        for kind, done, lines in forgeries(count, seed, digest=digest, files=files):
            made[kind] += 1
            if passes(lines, Path(scratch)):
                passed[kind].append(done)
    return made, passed


def main() -> int:
    """Forge, submit, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--with-digest", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    made, passed = run(options.count, options.seed, digest=options.with_digest)
    for kind, number in made.items():
        print(f"{kind}: {len(passed[kind])} of {number} pass")
        for done, times in Counter(passed[kind]).most_common():
            print(f"    {times} x {done}")
    share = sum(map(len, passed.values())) / made.total()
    print(f"all: {share:.1%} of {made.total()} pass")
    return int(share > MOST_THAT_MAY_PASS)


if __name__ == "__main__":
    sys.exit(main())
