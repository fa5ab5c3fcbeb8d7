"""The study `scaling`: speedup and efficiency by number of processes, and times of all-reduces. `answer` calls it."""

from collections.abc import Iterator

from gpubench.analysis.compare import Compared
from gpubench.analysis.groups import short
from gpubench.analysis.scaling import Curve, Sums, curves_of, goal_curves_of, sums_of
from gpubench.studies import words
from gpubench.studies.cases import known
from gpubench.studies.section import Bar, BarGroup, Bars, Column, Result, Section, Value, table_of_lines


def sections(compared: Compared) -> Iterator[Section]:
    """Yield a section per curve over numbers of processes, and per table of all-reduces."""
    if not compared.is_usual or not (compared.frame["processes"] > 1).any():
        return
    curves = [*curves_of(compared.frame), *goal_curves_of(compared.frame)]
    titles = words.with_differences([_curve_title(curve) for curve in curves], [curve.known for curve in curves])
    yield from map(_of_curve, curves, titles)
    sums = sums_of(compared.frame)
    titles = words.with_differences([_sums_title(table) for table in sums], [table.known for table in sums])
    yield from map(_of_sums, sums, titles)


def _curve_title(curve: Curve) -> str:
    known, card = curve.known, short(str(curve.known["card"]))
    if curve.is_to_goal:
        return f"minutes to the goal of {known['goal']:g} by processes, {known['model']} on {card}"
    sent = f", gradients sent as {curve.sent}" if curve.sent else ""
    return f"{known['model']} {known['precision']}, {card}, batch {curve.samples:.0f} per process{sent}"


def _of_curve(curve: Curve, title: str) -> Section:
    """Return the section of a curve: speed and efficiency by number of processes."""
    first, to_goal = curve.points[0], curve.is_to_goal
    figure = Column("minutes", "min", "lower") if to_goal else Column("samples/s", "samples/s", "higher")
    lines: list[dict[Column, Value]] = [
        {
            Column("machines", "count"): known(point.machines),
            Column("processes", "count"): point.processes,
            figure: 1 / point.speed / 60 if to_goal else point.speed,
            Column(f"speedup over {first.processes}", "ratio", "higher"): point.speed / first.speed,
            Column(f"efficiency over {first.processes}", "share", "higher"): point.efficiency,
            Column("epochs", "count"): known(point.epochs),
            Column("trials", "count"): point.trials,
            Column("notes", note=True): point.note,
        }
        for point in curve.points
    ]
    suite, table = str(curve.known["suite"]), table_of_lines(title, lines)
    return Section("scaling", suite, f"{suite}: {title}", (_result(curve, title),), (table,), cases=curve.cases)


def _result(curve: Curve, title: str) -> Result:
    """Return the result of the most processes over the fewest, with a chart of the efficiency."""
    first, last, suite = curve.points[0], curve.points[-1], str(curve.known["suite"])
    gain, card = last.speed / first.speed, short(str(curve.known["card"]))
    verb, how = ("reach the goal", "soon") if curve.is_to_goal else ("train", "fast")
    said = f"{last.processes} processes {verb} {words.times(gain)} as {how} as {first.processes} on {words.name(card)}"
    said += f": scaling efficiency {last.efficiency:.0%}"
    chart = Bars(
        words.slug(f"{suite} {'goal' if curve.is_to_goal else 'scaling'} efficiency"),
        said,
        f"Share of perfect scaling{' to the goal, as published' * curve.is_to_goal}, by processes; higher is better",
        (BarGroup(card, tuple(Bar(f"{point.processes} processes", point.efficiency) for point in curve.points)),),
        "share",
        cases=curve.cases,
    )
    return Result(
        kind="scaling",
        suite=suite,
        subject=f"{last.processes} processes",
        baseline=str(first.processes),
        value=gain,
        models=(str(curve.known["model"]),),
        trials=(last.trials, first.trials),
        said=said,
        place=card,
        origin=f"{'to the goal, ' * curve.is_to_goal}efficiency {last.efficiency:.0%}",
        facts={"title": title},
        differences=(*["published"] * curve.is_to_goal, *["schedules differ"] * (curve.recipes > 1)),
        charts=(chart,),
        cases=curve.cases,
        source="; ".join(curve.sources),
    )


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
