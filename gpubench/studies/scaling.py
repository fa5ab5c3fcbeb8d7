"""The study `scaling`: speedup and efficiency by number of processes, and times of all-reduces. `answer` calls it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import short
from gpubench.analysis.scaling import Curve, Point, Sums, curves_of, goal_curves_of, sums_of
from gpubench.studies import words
from gpubench.studies.cases import known
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Result, Section, Table, Value, table_of_lines


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per suite with curves, per published series to a goal, and per table of all-reduces."""
    if not compared.is_usual or not (compared.frame["processes"] > 1).any():
        return
    curves = curves_of(compared.frame)
    titles = words.with_differences([_curve_title(curve) for curve in curves], [curve.known for curve in curves])
    for suite in dict.fromkeys(str(curve.known["suite"]) for curve in curves):
        of_suite = [(c, title) for c, title in zip(curves, titles, strict=True) if c.known["suite"] == suite]
        yield _of_curves(suite, [curve for curve, _ in of_suite], [title for _, title in of_suite])
    yield from map(_of_goal, goal_curves_of(compared.frame))
    sums = sums_of(compared.frame)
    titles = words.with_differences([_sums_title(table) for table in sums], [table.known for table in sums])
    yield from (_of_sums(table, title) for table, title in zip(sums, titles, strict=True))


def _curve_title(curve: Curve) -> str:
    known = curve.known
    sent = f", gradients sent as {curve.sent}" if curve.sent else ""
    what = f"{known['model']} {known['precision']}, {short(str(known['card']))}"
    return f"{what}, batch {curve.samples:.0f} per process{sent}"


def _of_curves(suite: str, curves: Sequence[Curve], titles: Sequence[str]) -> Section:
    cases = frozenset[int]().union(*(curve.cases for curve in curves))
    results = [
        replace(
            _result(curve, "train", "fast"),
            origin=f"efficiency {curve.points[-1].efficiency:.0%}",
            facts={"title": title},
        )
        for curve, title in zip(curves, titles, strict=True)
    ]
    tables = [_curve_table(curve, title) for curve, title in zip(curves, titles, strict=True)]
    title = f"{suite}: scaling over processes"
    said = results[0].said if len(results) == 1 else title
    points = {title: curve.points for curve, title in zip(curves, titles, strict=True)}
    foot = "; ".join(dict.fromkeys(f"torch {curve.known['torch']}" for curve in curves))
    subtitle = "Share of perfect scaling by processes"
    chart = replace(_efficiency_chart(f"{suite} scaling efficiency", said, subtitle, points, cases), foot=foot)
    return Section("scaling", suite, title, tuple(results), tuple(tables), (chart,), cases=cases)


def _result(curve: Curve, verb: str, how: str) -> Result:
    """Return a result of the most processes over the fewest."""
    first, last, card = curve.points[0], curve.points[-1], short(str(curve.known["card"]))
    gain = last.speed / first.speed
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
    lines: list[dict[Column, Value]] = [
        {
            Column("processes", "count"): point.processes,
            Column("samples/s", "samples/s", "higher"): point.speed,
            Column(f"efficiency over {curve.points[0].processes}", "share", "higher"): point.efficiency,
            Column("trials", "count"): point.trials,
        }
        for point in curve.points
    ]
    return table_of_lines(title, lines)


def _efficiency_chart(
    name: str, said: str, subtitle: str, curves: Mapping[str, Sequence[Point]], cases: frozenset[int]
) -> Bars:
    """Return the chart of efficiency by number of processes, a group of bars per curve."""
    bar_groups = (
        BarGroup(title, tuple(Bar(f"{point.processes} processes", point.efficiency) for point in points))
        for title, points in curves.items()
    )
    return Bars(words.slug(name), said, f"{subtitle}; higher is better", tuple(bar_groups), "share", cases=cases)


def _of_goal(curve: Curve) -> Section:
    """Return the section of a published series: time to the goal and scaling efficiency by processes."""
    known_facts, first, last = curve.known, curve.points[0], curve.points[-1]
    lines: list[dict[Column, Value]] = [
        {
            Column("machines", "count"): known(point.machines),
            Column("processes", "count"): point.processes,
            Column("minutes", "min", "lower"): 1 / point.speed / 60,
            Column(f"speedup over {first.processes}", "ratio", "higher"): point.speed / first.speed,
            Column(f"efficiency over {first.processes}", "share", "higher"): point.efficiency,
            Column("epochs", "count"): known(point.epochs),
            Column("notes", note=True): point.note,
        }
        for point in curve.points
    ]
    result = _result(curve, "reach the goal", "soon")
    name, subtitle = f"{result.suite} goal efficiency", "Share of perfect scaling to the goal, as published"
    result = replace(
        result,
        origin=f"to the goal, efficiency {last.efficiency:.0%}",
        differences=("published", *(["schedules differ"] if curve.recipes > 1 else [])),
        charts=(_efficiency_chart(name, result.said, subtitle, {result.place: curve.points}, curve.cases),),
        source="; ".join(curve.sources),
    )
    goal = f"minutes to the goal of {known_facts['goal']:g} by processes"
    title = f"{result.suite}: {goal}, {known_facts['model']} on {result.place}"
    tables = (table_of_lines("minutes to the goal", lines),)
    return Section("scaling", result.suite, title, (result,), tables, cases=curve.cases)


def _sums_title(sums: Sums) -> str:
    known = sums.known
    where = f"{short(str(known['card']))}, {known['backend']} over {known['interconnect']}"
    return f"all-reduce of {known['precision']} gradients on {where}"


def _of_sums(sums: Sums, title: str) -> Section:
    """Return the section of the all-reduces: the fastest algorithm for each size."""
    lines: list[dict[Column, Value]] = [
        {
            Column("processes", "count"): line.processes,
            Column("of"): line.what.replace("message", "one message"),
            Column("size", "bytes"): line.bytes,
            Column("fastest"): f"{line.algorithm}{', fused' * line.fused}",
            Column("seconds", "s", "lower"): line.seconds,
            Column("busbw", "GB/s", "higher"): line.busbw,
        }
        for line in sums.lines
    ]
    suite, largest = str(sums.known["suite"]), max(sums.lines, key=lambda line: line.busbw)
    count, bandwidth = largest.processes, f"{largest.busbw:.3g} GB/s"
    result = Result(
        kind="scaling",
        suite=suite,
        subject=f"{largest.algorithm} all-reduce",
        value=largest.busbw,
        models=("all-reduce",),
        said=f"The fastest all-reduce of {count} processes moves {bandwidth} ({largest.algorithm})",
        origin=f"{count} processes",
        figure=bandwidth,
        place=short(str(sums.known["card"])),
        cases=sums.cases,
    )
    return Section("scaling", suite, title, (result,), (table_of_lines("all-reduces", lines),), cases=sums.cases)
