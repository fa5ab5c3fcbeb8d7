"""The study `batch`: the rate by batch (from batch searches), and the accuracy by batch. `answer` calls it."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from gpubench.analysis.compare import Compared, Workload
from gpubench.analysis.groups import CUT_SHORT, Group, marks_in, short
from gpubench.rows.alike import STACK
from gpubench.rows.params import params_of, params_without
from gpubench.rows.read import stored
from gpubench.rows.table import BROKEN, number
from gpubench.studies import words
from gpubench.studies.cases import cases_of, cut_notes, known
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Result, Section, Table, Value
from gpubench.suite.trial import TRAINED

NOT_CHOSEN = {"", "0", "0.0"}
"""Values of `lr` in a row that mean the suite's default."""
RECIPE = ["suite", "suite_version", "model", "precision", "params", "data", "mode", "card", *STACK]
"""Columns in which all rows of one recipe, card and software stack agree."""
RateByBatch = dict[int, tuple[float, float]]
"""Samples per second and peak bytes by batch."""


@dataclass(frozen=True)
class BatchAccuracy:
    """The accuracy of one recipe with one batch: medians over its trials."""

    batch: int
    accuracy: float
    trials: int
    seconds: float
    rate: float
    marks: Counter[str]
    cut: int
    """Trials that diverged or reached the time limit."""
    lr: str = ""
    """The learning rate, if it depends on the batch; else empty."""


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per workload with batch searches, and one per suite with the accuracy by batch."""
    if not compared.is_usual:
        return
    for workload in compared.workloads:
        curves = [(group, curve) for group in workload.groups if len(curve := _curve(group)) > 1]
        if curves:
            yield _of_curves(workload, curves)
    yield from _of_accuracy(compared)


def _curve(group: Group) -> RateByBatch:
    """Return rate and memory by batch, as the search measured them; empty if the row has no readable curve."""
    try:
        tried = json.loads(str(group.row["batch_curve"]) or "[]")
        measured = {
            int(number(batch)): (number(rate), number(more[0]) if more else math.nan) for batch, rate, *more in tried
        }
    except BROKEN:
        return {}
    return {batch: measured[batch] for batch in sorted(measured) if batch > 0 and measured[batch][0] > 0}


def _of_curves(workload: Workload, curves: list[tuple[Group, RateByBatch]]) -> Section:
    lines: list[dict[Column, Value]] = [
        {
            Column("model"): group.model,
            Column("card"): group.label,
            Column("precision"): group.precision,
            Column("batch", "count"): batch,
            Column("samples/s", "samples/s", "higher"): rate,
            Column("peak memory", "bytes", "lower"): known(peak),
        }
        for group, curve in curves
        for batch, (rate, peak) in curve.items()
    ]
    suite, title = workload.groups[0].suite, f"{words.title_of(workload.groups)}; rate by batch"
    results = [_fastest(group, curve) for group, curve in curves]
    groups = [group for group, _ in curves]
    bar_groups = [
        BarGroup(
            f"{group.model} {group.precision} {group.label}",
            tuple(Bar(f"batch {batch:,}", rate) for batch, (rate, _) in curve.items()),
        )
        for group, curve in curves
    ]
    chart = Bars(
        words.slug(title),
        results[0].said if len(results) == 1 else f"{suite}: rate by batch",
        f"Training {words.sample_of(suite)} per second by batch; higher is better; {title}",
        tuple(bar_groups),
        "samples/s",
        foot=words.chart_foot(groups),
        cases=words.behind(groups),
    )
    more = {"tables": (Table.of("rate by batch", lines),), "charts": (chart,), "cases": words.behind(groups)}
    return words.section_of(workload.groups, "batch", "; rate by batch", results, **more)


def _fastest(group: Group, curve: RateByBatch) -> Result:
    """Return the result of the fastest batch over the smallest, or over the largest if the smallest is the fastest."""
    best = max(curve, key=lambda batch: curve[batch][0])
    other = min(curve) if best > min(curve) else max(curve)
    gain = curve[best][0] / curve[other][0]
    where = f"on {words.name(group.label)} in {group.precision}"
    claim = f"Batch {best:,} trains {words.times(gain)} as fast as batch {other:,} {where}"
    return words.result_of(
        [group],
        "batch",
        f"batch {best:,}",
        gain,
        claim,
        baseline=f"{other:,}",
        verdict="one run",
        trials=(1, 1),
        origin=f"{group.precision}, {group.suite}",
        precision=group.precision,
        place=group.label,
        caveats=(),
        projected=False,
    )


def _of_accuracy(compared: Compared) -> Iterator[Section]:
    """Yield a section per suite: the accuracy by `global_batch` of each recipe, card and software stack.

    Rows of all sessions and specimens of a card are pooled: neither changes the accuracy.
    """
    frame = compared.frame
    named = frame["studies"].isin([text for text in set(stored(frame["studies"])) if "batch" in str(text).split()])
    # Large batches that miss the suite's goal have an accuracy too.
    rows = frame[frame["status"].isin(TRAINED) & named & frame["accuracy"].notna()]
    batches = pd.to_numeric(rows["params"].map(lambda text: params_of(text).get("global_batch")), errors="coerce")
    recipes = rows["params"].map(lambda text: params_without(str(text), ["global_batch"]))
    rows = rows.assign(params=recipes, global_batch=batches)[batches.between(1, 1e9)]
    rows = rows.assign(cut=rows["case"].map(Counter(frame.loc[frame["status"].isin(CUT_SHORT), "case"])))
    for suite, of_suite in _with_learning_rates(rows).groupby("suite", sort=False):
        yield _accuracy_section(str(suite), of_suite)


def _recipes(rows: pd.DataFrame) -> dict[str, list[BatchAccuracy]]:
    """Return the batches of each recipe, card and stack, by a title that distinguishes these."""
    recipes, batches = [], []
    for names, alike in rows.groupby(RECIPE, dropna=False, sort=False):
        recipes.append(dict(zip(RECIPE, names, strict=True)))
        batches.append([_batch(trials) for _, trials in alike.groupby("global_batch")])
    titles = [title or "accuracy" for title in words.with_differences([""] * len(recipes), recipes)]
    titles = [f"{title} ({n})" if titles.count(title) > 1 else title for n, title in enumerate(titles, start=1)]
    return dict(zip(titles, batches, strict=True))


def _with_learning_rates(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a column `lr`: moved out of `params` if the learning rate of a recipe depends on the batch.

    Else `lr` is empty, and each learning rate is a recipe of its own: all batches have the same one, a batch has
    several, or a batch has the suite's default.
    """
    recipe = frame["params"].map(lambda text: params_without(str(text), ["lr"]))
    lr = frame["params"].map(lambda text: params_of(text).get("lr", ""))
    differs = pd.Series(False, frame.index)
    for _, rows in frame.assign(params=recipe, lr=lr).groupby(RECIPE, dropna=False):
        rates = rows.groupby("global_batch")["lr"].agg(set)
        chosen = set().union(*rates)
        differs[rows.index] = all(len(rate) == 1 for rate in rates) and len(chosen) > 1 and not chosen & NOT_CHOSEN
    return frame.assign(params=frame["params"].mask(differs, recipe), lr=lr.where(differs, ""))


def _batch(rows: pd.DataFrame) -> BatchAccuracy:
    names = ("accuracy", "value", "samples_per_second")
    accuracy, seconds, rate = (float(rows[name].dropna().median()) for name in names)
    batch, lr = int(rows["global_batch"].iloc[0]), str(rows["lr"].iloc[0])
    cut = int(rows.drop_duplicates("case")["cut"].sum())
    return BatchAccuracy(batch, accuracy, len(rows), seconds, rate, marks_in(rows), cut, lr)


def _accuracy_section(suite: str, rows: pd.DataFrame) -> Section:
    recipes, cases = _recipes(rows), cases_of(rows)
    lines: list[dict[Column, Value]] = [
        {
            Column("recipe"): name,
            Column("batch", "count"): size.batch,
            Column("lr"): size.lr,
            Column("accuracy", "share", "higher", places=2): size.accuracy,
            Column("change", "points", places=2): (size.accuracy - sizes[0].accuracy) * 100,
            Column("seconds", "s", "lower"): size.seconds,
            Column("samples/s", "samples/s", "higher"): size.rate,
            Column("trials", "count"): size.trials,
            Column("notes", note=True): "; ".join(
                [*cut_notes(size.cut, size.trials), *words.marked(size.marks, size.trials)]
            ),
        }
        for name, sizes in recipes.items()
        for size in sizes
    ]
    where = words.listed(map(words.data_name, sorted(rows["data"].unique())))
    torch = [f"torch {version}" for version in sorted(rows["torch"].unique()) if version]
    marks = words.marked(marks_in(rows), len(rows), "runs ")
    title = f"{suite}: accuracy as the batch grows"
    chart = Bars(
        words.slug(f"{suite} accuracy by batch"),
        title,
        f"Accuracy on {where} by {words.sample_of(suite)} per step; higher is better",
        tuple(
            BarGroup(name, tuple(Bar(f"batch {_named(size)}", size.accuracy) for size in sizes))
            for name, sizes in recipes.items()
        ),
        "share",
        foot="; ".join([words.listed(sorted(map(short, rows["card"].unique()))), *torch, *marks]),
        cases=cases,
    )
    results = tuple(_accuracy_result(suite, name, sizes, cases) for name, sizes in recipes.items() if len(sizes) > 1)
    return Section("batch", suite, title, results, (Table.of("accuracy by batch", lines),), (chart,), cases=cases)


def _accuracy_result(suite: str, name: str, sizes: list[BatchAccuracy], cases: frozenset[int]) -> Result:
    """Return the result of the largest batch over the smallest: the change of accuracy, in points."""
    small, large = sizes[0], sizes[-1]
    points = (large.accuracy - small.accuracy) * 100
    change = f"{abs(points):.1f} points {'less' if points < 0 else 'more'} accuracy"
    return Result(
        kind="batch",
        suite=suite,
        subject=f"batch {large.batch:,}",
        baseline=f"{small.batch:,}",
        value=large.accuracy / small.accuracy if small.accuracy else 1.0,
        verdict=words.without_test((large.trials, small.trials)),
        models=(name,),
        trials=(large.trials, small.trials),
        said=f"Batch {_named(large)} has {change} than batch {_named(small)}",
        origin=suite,
        figure=f"{points:+.1f} pt",
        caveats=(
            *(f"batch {size.batch:,}: {text}" for size in (small, large) for text in cut_notes(size.cut, size.trials)),
            *words.marked(small.marks + large.marks, small.trials + large.trials, "runs "),
        ),
        cases=cases,
    )


def _named(size: BatchAccuracy) -> str:
    """Return the batch, with its learning rate if that depends on the batch."""
    return f"{size.batch:,}" + (f" (lr {size.lr})" if size.lr else "")
