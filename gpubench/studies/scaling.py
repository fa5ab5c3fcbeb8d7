"""Scaling: speedup and efficiency by number of processes, and times of all-reduces."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import short, text_of
from gpubench.analysis.scaling import Curve, Point, Sums, curves_of, sums_of
from gpubench.analysis.time_to_goal import GoalCurve, Reach, goal_curves_of
from gpubench.rows.alike import SPECIMEN, STACK
from gpubench.studies import words
from gpubench.studies.cases import known
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Result, Section, Table


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per suite with curves, per published series to a goal, and per table of all-reduces."""
    if not compared.is_usual or not (compared.frame["processes"] > 1).any():
        return
    curves = curves_of(compared.frame)
    titles = _titles([_curve_title(curve) for curve in curves], [curve.known for curve in curves])
    for suite in dict.fromkeys(str(curve.known["suite"]) for curve in curves):
        of_suite = [(c, title) for c, title in zip(curves, titles, strict=True) if c.known["suite"] == suite]
        yield _of_curves(suite, [curve for curve, _ in of_suite], [title for _, title in of_suite])
    yield from map(_of_goal, goal_curves_of(compared.frame))
    sums = sums_of(compared.frame)
    titles = _titles([_sums_title(table) for table in sums], [table.known for table in sums])
    yield from (_of_sums(table, title) for table, title in zip(sums, titles, strict=True))


def _titles(titles: Sequence[str], known: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the titles; equal ones get the facts in which they differ."""
    facts = []
    for names in known:
        usual = {k: f"{k}={text_of(v)}" for k, v in names.items() if k not in {"params", *STACK, *SPECIMEN}}
        facts.append(
            usual
            | words.settings_of(names)
            | {k: f"{k}={text_of(names[k])}" for k in (*STACK, *SPECIMEN) if k in names}
        )
    return [", ".join([title, *more]) for title, more in zip(titles, words.apart(titles, facts), strict=True)]


def _curve_title(curve: Curve) -> str:
    known = curve.known
    sent = f", gradients sent as {curve.sent}" if curve.sent else ""
    what = f"{known['model']} {known['precision']}, {short(str(known['card']))}"
    return f"{what}, batch {curve.samples:.0f} per process{sent}"


def _of_curves(suite: str, curves: Sequence[Curve], titles: Sequence[str]) -> Section:
    cases = frozenset[int]().union(*(curve.cases for curve in curves))
    results = tuple(_result(curve, title) for curve, title in zip(curves, titles, strict=True))
    tables = tuple(_curve_table(curve, title) for curve, title in zip(curves, titles, strict=True))
    said = results[0].said if len(results) == 1 else f"{suite}: scaling over processes"
    points = {title: curve.points for curve, title in zip(curves, titles, strict=True)}
    foot = "; ".join(dict.fromkeys(f"torch {curve.known['torch']}" for curve in curves))
    subtitle = "Share of perfect scaling by processes"
    chart = replace(_efficiency_chart(f"{suite} scaling efficiency", said, subtitle, points, cases), foot=foot)
    title = f"{suite}: scaling over processes"
    return Section("scaling", suite, title, results, tables, (chart,), cases=cases)


def _result(curve: Curve, title: str) -> Result:
    """Return the result of the most processes over the fewest, by rate."""
    first, last = curve.points[0], curve.points[-1]
    result = _scaled(curve, last.rate / first.rate, "train", "fast")
    return replace(result, origin=f"efficiency {last.efficiency:.0%}", facts={"title": title})


def _scaled(curve: Curve | GoalCurve, gain: float, verb: str, how: str) -> Result:
    """Return a result of the most processes over the fewest."""
    first, last, card = curve.points[0], curve.points[-1], short(str(curve.known["card"]))
    said = f"{last.processes} processes {verb} {words.times(gain)} as {how} as {first.processes} on {words.name(card)}"
    return Result(
        kind="scaling",
        suite=str(curve.known["suite"]),
        subject=f"{last.processes} processes",
        baseline=str(first.processes),
        value=gain,
        models=(str(curve.known["model"]),),
        trials=(last.trials, first.trials),
        said=f"{said}: scaling efficiency {last.efficiency:.0%}",
        place=card,
        cases=curve.cases,
    )


def _curve_table(curve: Curve, title: str) -> Table:
    columns = (
        Column("processes", "count"),
        Column("samples/s", "samples/s", "higher"),
        Column(f"efficiency over {curve.base}", "share", "higher"),
        Column("trials", "count"),
    )
    return Table(title, columns, tuple((p.processes, p.rate, p.efficiency, p.trials) for p in curve.points))


def _efficiency_chart(
    name: str, said: str, subtitle: str, curves: Mapping[str, Sequence[Point | Reach]], cases: frozenset[int]
) -> Bars:
    """Return the chart of efficiency by number of processes, a group of bars per curve."""
    bar_groups = (
        BarGroup(title, tuple(Bar(f"{point.processes} processes", point.efficiency) for point in points))
        for title, points in curves.items()
    )
    return Bars(words.slug(name), said, f"{subtitle}; higher is better", tuple(bar_groups), "share", cases=cases)


def _of_goal(curve: GoalCurve) -> Section:
    """Return the section of a published series: time to the goal and scaling efficiency by processes."""
    facts, fewest = curve.known, curve.points[0].processes
    suite, card = str(facts["suite"]), short(str(facts["card"]))
    columns = (
        Column("machines", "count"),
        Column("processes", "count"),
        Column("minutes", "min", "lower"),
        Column(f"times as soon as {fewest}", "ratio", "higher"),
        Column(f"efficiency over {fewest}", "share", "higher"),
        Column("epochs", "count"),
        Column("notes", note=True),
    )
    lines = tuple(
        (
            *(known(point.machines), point.processes, point.seconds / 60, curve.points[0].seconds / point.seconds),
            *(point.efficiency, known(point.epochs), point.note),
        )
        for point in curve.points
    )
    title = f"{suite}: minutes to the goal of {facts['goal']:g} by processes, {facts['model']} on {card}"
    table = Table("minutes to the goal", columns, lines)
    return Section("scaling", suite, title, (_soonest(curve),), (table,), cases=curve.cases)


def _soonest(curve: GoalCurve) -> Result:
    """Return the result of the most processes over the fewest, by time to the goal."""
    first, last = curve.points[0], curve.points[-1]
    result = _scaled(curve, first.seconds / last.seconds, "reach the goal", "soon")
    name, subtitle = f"{result.suite} goal efficiency", "Share of perfect scaling to the goal, as published"
    return replace(
        result,
        origin=f"to the goal, efficiency {last.efficiency:.0%}",
        differences=("published", *(["schedules differ"] if curve.recipes > 1 else [])),
        charts=(_efficiency_chart(name, result.said, subtitle, {result.place: curve.points}, curve.cases),),
        source="; ".join(curve.sources),
    )


def _sums_title(sums: Sums) -> str:
    known = sums.known
    where = f"{short(str(known['card']))}, {known['backend']} over {known['interconnect']}"
    return f"all-reduce of {known['precision']} gradients on {where}"


def _of_sums(sums: Sums, title: str) -> Section:
    columns = (
        Column("processes", "count"),
        Column("of"),
        Column("size", "bytes"),
        Column("fastest"),
        Column("seconds", "s", "lower"),
        Column("busbw", "GB/s", "higher"),
    )
    lines = []
    for line in sums.lines:
        what, fastest = line.what.replace("message", "one message"), f"{line.algorithm}{', fused' * line.fused}"
        lines.append((line.processes, what, line.bytes, fastest, line.seconds, line.busbw))
    largest = max(sums.lines, key=lambda line: line.busbw)
    count, speed = largest.processes, f"{largest.busbw:.3g} GB/s"
    result = Result(
        kind="scaling",
        suite=str(sums.known["suite"]),
        subject=f"{largest.algorithm} all-reduce",
        value=largest.busbw,
        models=("all-reduce",),
        said=f"The fastest all-reduce of {count} processes moves {speed} ({largest.algorithm})",
        origin=f"{count} processes",
        figure=speed,
        place=short(str(sums.known["card"])),
        cases=sums.cases,
    )
    return Section(
        "scaling",
        str(sums.known["suite"]),
        title,
        (result,),
        (Table("all-reduces", columns, tuple(lines)),),
        cases=sums.cases,
    )
