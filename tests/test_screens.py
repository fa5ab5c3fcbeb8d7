"""Whole answers as files, tests/screens/: a change of a figure, a word or an order shows in their diff.

To accept a change: `WRITE_SCREENS=1 pytest tests/test_screens.py`. Numbers have six digits: the last ones vary by CPU.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rows import row, rows

from gpubench.rows import write

FOLDER = Path(__file__).parent / "screens"
RESULTS = Path(__file__).parents[1] / "results"
TI = RESULTS / "2019-rtx-2080-ti-gtx-1080-ti.csv"
LADDER = RESULTS / "2019-cifar10-ladder-v100.csv"
CPU = [RESULTS / f"2026-11-amd-epyc-2-cores{name}.csv" for name in ("", "-full", "-tricks", "-tricks-all-six")]
STEADY, NOISY = (100.0, 101.0, 99.0, 100.5, 99.5, 100.2), (80.0, 104.0, 91.0, 99.0, 120.0, 85.0)
OTHER = {"card": "NVIDIA GeForce RTX 3090", "device_hash": "bbbb"}


def made_up():
    """Rows of two cards: a decided case, noisy ones, quick and generated ones, parameters, accuracies, misses."""
    faster = [seconds / 1.3 for seconds in STEADY]
    yield from rows(STEADY)
    yield from rows(faster, **OTHER, batch_size=128, marks="throttled")
    for model, there in (("resnet34", NOISY), ("resnet50", [seconds * 1.2 for seconds in STEADY])):
        yield from rows(STEADY, model=model)
        yield from rows(there, **OTHER, model=model)
    for precision, factor in (("fp16", 0.6), ("bf16", 0.7), ("fp16-master", 0.9)):
        for compiled, gain in (("true", 0.8), ("false", 1.0)):
            times = [factor * gain * seconds for seconds in STEADY]
            yield from rows(
                times, model="gpt2", suite="gpt", precision=precision, params=f"compile={compiled} epochs=1"
            )
    yield from rows([9.0], model="resnet101", mode="quick", measured="projected")
    yield from rows([7.0], model="resnet101", mode="quick", measured="projected", **OTHER)
    yield row(model="resnet101", precision="tf32", status="unsupported", reason="no TF32", seconds=None, measured="")
    yield from rows(STEADY, model="resnet152", data="synthetic")
    yield from rows(faster, model="resnet152", data="synthetic", **OTHER)
    for card, accuracy in (({}, 0.940), (OTHER, 0.936)):
        for trial in rows(STEADY, suite="cifar10", model="baseline", params="goal=0.94", **card):
            reached = accuracy + 0.001 * trial.trial
            yield replace(trial, accuracy=reached, status="ok" if reached >= 0.94 else "goal_missed")


QUESTIONS = {
    "article": (TI,),
    "published": (TI, RESULTS / "2019-rtx-2060-gtx-1080-ti.csv", LADDER, "--all"),
    "published-csv": (TI, "--format", "csv"),
    "published-json": (TI, "--where", "model=resnet18", "--format", "json"),
    "measured": (*CPU, "--all"),
    "measured-accuracy": (*CPU, "--metric", "accuracy"),
    "made-up": ("made-up.csv",),
    "made-up-all": ("made-up.csv", "--all"),
    "made-up-markdown": ("made-up.csv", "--format", "markdown"),
    "made-up-accuracy": ("made-up.csv", "--metric", "accuracy", "--all"),
    "made-up-two-axes": ("made-up.csv", "--by", "compile,precision", "--all"),
    "made-up-gate": ("made-up.csv", "--by", "card", "--baseline", "3090", "--fail-on-slower", "5%"),
    "made-up-suite": ("made-up.csv", "--only", "gpt"),
    "made-up-precisions": ("made-up.csv", "--where", "suite=gpt", "--where", "precision!=bf16"),
    "nothing": ("made-up.csv", "--where", "suite=resnet", "--where", "card=NVIDIA GeForce RTX 3090"),
    "nothing-bound": (RESULTS / "2026-11-h100.csv",),
}


def six_digits(text: str) -> str:
    """Return the text with at most six digits in each number that has a point."""
    return re.sub(r"\d+\.\d{5,}(e-?\d+)?", lambda number: f"{float(number[0]):.6g}", text)


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_is_as_it_was(cli, tmp_path, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")  # whatever the terminal of the tests
    write.append(tmp_path / "made-up.csv", list(made_up()))
    done = cli("compare", *QUESTIONS[name])
    text = six_digits(f"{done.stdout}{done.stderr}exit code {done.returncode}\n").replace(f"{tmp_path}/", "")
    expected = FOLDER / f"{name}.txt"
    if os.environ.get("WRITE_SCREENS"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")
