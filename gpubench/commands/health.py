"""Is this card healthy? Rows measured here against reference rows of the same recipe on the same card."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gpubench.errors import UserError
from gpubench.hardware.state import Check
from gpubench.studies.acceptance.alike import STACK, measured_rows
from gpubench.studies.roofline import listed_peaks

BAND = 0.10
"""Two healthy specimens of a card, with their hosts, differ by less than this (published: up to 5% inside one node)."""

STACK_BAND = 0.25
"""And by less than this under another torch or CUDA, which alone is worth up to 20%."""

USUAL_SHARE = 0.6
"""Healthy cards reach more than this of their listed peak (mamf-finder: 73 to 87% on NVIDIA's from A100 to GB200)."""

ADVICE = "`gpubench doctor` looks for what slows it: power limit, clocks, heat, PCIe link, other programs, the host"


def health(mine: Sequence[Path], against: Sequence[Path]) -> list[Check]:
    """One check per recipe in `mine`; folders in `against` stand for their CSV files.

    Raises UserError where `mine` holds no measured row.
    """
    measured, problems = measured_rows(mine)
    if measured.empty:
        why = "; ".join(problems) or "no ok row of a sampled or full run"
        raise UserError(f"nothing to judge: {why}; measure first, with `gpubench run`")
    references, wrong = measured_rows(against)
    references = references[~references["session"].isin(measured["session"])]
    by_recipe = measured.groupby("recipe", sort=False)
    found = [_judged(rows, references[references["recipe"] == recipe]) for recipe, rows in by_recipe]
    return found + [Check("note", problem, "mend it, or leave it out") for problem in [*problems, *wrong]]


def _judged(rows: pd.DataFrame, references: pd.DataFrame) -> Check:
    first = rows.iloc[0]
    batch = "" if pd.isna(first["batch_size"]) else f" batch {first['batch_size']:.0f}"
    what = f"{first['card']}: {first['suite']} {first['model']} {first['precision']}{batch}"
    if references.empty:
        return _by_peak(rows, what)
    stacks = {tuple(stack) for stack in rows[STACK].to_numpy()}
    alike = references[[tuple(stack) in stacks for stack in references[STACK].to_numpy()]]
    band = STACK_BAND if alike.empty else BAND
    chosen = references if alike.empty else alike
    ratio = rows["samples_per_second"].dropna().median() / chosen["samples_per_second"].dropna().median()
    devices = chosen.groupby(["device_hash", "session"]).ngroups
    text = (
        f"{what}: {ratio:.2f} of the reference ({len(rows)} trial(s) against {len(chosen)} of {devices} device(s)"
        f"{', another torch or CUDA' if alike.empty else ''}; healthy within {band:.0%})"
    )
    marks = sorted({mark for text_of in rows["marks"] for mark in text_of.split()})
    text += f"; here some trials were {', '.join(marks)}" if marks else ""
    if ratio < 1 - band:
        return Check("fix", text, ADVICE)
    if ratio > 1 + band:
        return Check("note", text, "faster than the reference: another clock, cooling or host, or a slow reference")
    return Check("ok", text)


def _by_peak(rows: pd.DataFrame, what: str) -> Check:
    """Without rows of others: the best matrix product measured here against what the card is listed to reach."""
    first = rows.iloc[0]
    others = "add files of others who ran this recipe: --against FOLDER"
    card = listed_peaks.find(first["card"], first["card_memory_bytes"])
    listed, measured = card.peak(first["precision"]) if card else None, rows["measured_peak_flops"].dropna().median()
    if not listed or pd.isna(measured):
        return Check("note", f"{what}: no reference", others)
    share = measured / listed
    text = (
        f"{what}: no reference; matrix products reach {share:.0%} of the listed {listed / 1e12:,.4g} TFLOP/s"
        f" (healthy above {USUAL_SHARE:.0%})"
    )
    return Check("fix", text, ADVICE) if share < USUAL_SHARE else Check("note", text, others)
