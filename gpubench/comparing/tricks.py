"""The suite `tricks`: each trick against the plain pipeline of its session, and whether it helped here."""

import re
from collections.abc import Sequence

import pandas as pd

from gpubench.analysis import stats
from gpubench.analysis.cells import SPECIMEN, TRICKS, Cell, texts_of
from gpubench.analysis.verdicts import Comparison
from gpubench.show.numbers import rate_text

PLAIN = "plain"
SWITCHES = re.compile(r"\b(loading|ddp|stopping|sharded|evaluation)=\S+ ?")
"""The parameters in which the models of one run differ by design."""
TOGETHER = [*SPECIMEN, "batch_policy", "fixed_batch", "basis"]
"""What a trick and its plain pipeline agree in, beside what their table shares."""


def kind_of(cell: Cell, shared: Sequence[str]) -> tuple[str, ...]:
    """What the cells of one table share: `shared`, and for a pipeline with tricks all of it but the tricks."""
    if cell.suite != TRICKS or "params" not in shared:
        return texts_of(cell, shared)
    others = [column for column in shared if column not in {"params", "processes"}]
    return (*texts_of(cell, others), _other_params(cell))


def against_plain(cells: Sequence[Cell]) -> list[Comparison]:
    """Seconds of each trick over those of the plain pipeline, of cells of one kind; to be judged."""
    found = []
    for plain in cells:
        if plain.suite != TRICKS or plain.model != PLAIN or plain.parts:
            continue
        for cell in cells:
            if cell.model == PLAIN or cell.parts or _place(cell) != _place(plain):
                continue
            ratio = stats.ratio(cell.seconds, plain.seconds, until=cell.adaptive or plain.adaptive)
            found.append(Comparison("model", cell, plain, str(cell.model), PLAIN, ratio))
    return found


def lines(comparisons: Sequence[Comparison], holes: Sequence[Cell]) -> list[dict[str, str]]:
    """A line per trick: its gain with interval, memory, accuracy, and whether it helped here."""
    ours = [c for c in comparisons if _is_trick(c)]
    found = []
    for c in ours:
        gain = c.ratio.inverse
        found.append(
            {
                "trick": c.subject_name,
                "speedup over plain": f"{gain.value:.2f}",
                "95%": f"{gain.low:.2f} to {gain.high:.2f}" if gain.low and gain.high else "",
                "peak memory": f"{_megabytes(c.subject)} (plain {_megabytes(c.other)})",
                "accuracy": _accuracy(c.subject),
                "epochs": f"{c.subject.epochs:.0f} of {c.other.epochs:.0f}",
                "notes": sentence(c),
            }
        )
    if ours:
        refused = [hole for hole in holes if hole.suite == TRICKS]
        blank = dict.fromkeys(found[0], "")
        found += [{**blank, "trick": str(h.model), "notes": f"{h.status}: {h.reason}"} for h in refused]
    return found


def sentence(c: Comparison) -> str:
    """Whether a trick helped here; where it did not, the figure that shows why."""
    saved = c.subject.peak_memory_bytes / c.other.peak_memory_bytes
    words = {
        "faster": "helped here",
        "slower": "made it slower here",
        "same": "changed nothing here",
        "unsure": "may or may not have helped here; more trials would tell",
    }.get(c.verdict, f"no verdict ({c.verdict})")
    if c.verdict == "faster":
        return words
    if saved < 1 - stats.MINIMUM_EFFECT:
        words += f", but it took {1 - saved:.0%} less memory"
    return f"{words}: {_evidence(c)}"


def _evidence(c: Comparison) -> str:
    trick, plain = c.subject, c.other
    name = c.subject_name.removeprefix("with-")
    if name == "loading":
        cores = f"; the same cpu_count={plain.cpu_count:.0f} cores load and train" if plain.device == "cpu" else ""
        return f"loader_wait is {trick.loader_wait:.0%} of the laps, and was {plain.loader_wait:.0%}{cores}"
    if name in {"ddp", "sharded"}:
        threads = f", with threads={trick.threads:.0f} each in place of {plain.threads:.0f}"
        rates = (
            f"samples_per_second {rate_text(trick.samples_per_second)} against {rate_text(plain.samples_per_second)}"
        )
        return f"{rates}: processes={trick.processes:.0f}{threads if plain.device == 'cpu' else ''}"
    if name == "mixed":
        rates = f"{_resident(trick)} against {_resident(plain)}"
        return f"resident_samples_per_second {rates} in {trick.precision}"
    if name == "stopping":
        all_ran = " (the loss still fell, so that none was left out)" if trick.epochs >= plain.epochs else ""
        return f"epochs {trick.epochs:.0f} against {plain.epochs:.0f}{all_ran}"
    share = plain.valid_seconds / plain.seconds[0] if plain.seconds else 0.0
    return f"valid_seconds {trick.valid_seconds:.2f} against {plain.valid_seconds:.2f}, {share:.0%} of the plain run"


def _resident(cell: Cell) -> str:
    return rate_text(cell.resident_samples_per_second) or "unknown"


def _place(cell: Cell) -> tuple[str, ...]:
    return (*texts_of(cell, TOGETHER), _other_params(cell))


def _other_params(cell: Cell) -> str:
    return SWITCHES.sub("", str(cell.params)).strip()


def _is_trick(c: Comparison) -> bool:
    return c.axis == "model" and c.subject.suite == TRICKS


def _megabytes(cell: Cell) -> str:
    return "" if pd.isna(cell.peak_memory_bytes) else f"{cell.peak_memory_bytes / 1e6:,.0f} MB"


def _accuracy(cell: Cell) -> str:
    return "" if pd.isna(cell.accuracy) else f"{cell.accuracy:.2%}"
