"""The end of `gpubench run --quick`: rates, their ratio, the rank among published cards, one chart, one command."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from facts import lacking
from inside import answering
from PIL import Image
from rows import row
from typer.testing import CliRunner

from gpubench.cli.app import app
from gpubench.cli.quick import neighbours, quick_lines
from gpubench.cli.run import print_results, results_of
from gpubench.hardware.environment import Device
from gpubench.rows import write as records
from gpubench.rows.read import load
from gpubench.runner.options import Options
from gpubench.runner.run import run
from gpubench.runner.session import RunSummary
from gpubench.suite.trial import Measurement

REFERENCE = {
    "suite": "reference", "studies": "placing", "model": "resnet50", "mode": "quick", "measured": "projected",
    "params": "epochs=1 image_size=224 lr=0.001", "data": "", "batch_policy": "max",
    "memory_format": "channels_last",
}  # fmt: skip
FAILED = {"status": "failed", "seconds": None, "measured": "", "samples_per_second": None}


@pytest.fixture
def finished(tmp_path, capsys, monkeypatch):
    """Returns the output and the CSV file of a quick run with these rates."""

    monkeypatch.chdir(tmp_path)

    def run(fp32, mixed, **changes):
        path = tmp_path / "a.csv"
        rates = {"fp32": fp32, ("bf16" if changes.get("device") == "cpu" else "fp16"): mixed}
        given = REFERENCE | changes
        trials = [row(**given | {"precision": name, "samples_per_second": rate}) for name, rate in rates.items()]
        records.append(path, trials)
        assert print_results(RunSummary(0, path, frozenset({"s1"}))) == 0
        text = capsys.readouterr().out
        assert max(map(len, text.replace(str(tmp_path), "").splitlines())) < 80
        return text, path

    return run


def next_of(text):
    return shlex.split(text.splitlines()[-1].removeprefix("next: gpubench "))


def test_a_card_is_ranked_among_published_ones(finished):
    text, path = finished(700.0, 1900.0, card="NVIDIA GeForce RTX 4090")
    assert lacking(text, "700 images/s", "1,900 images/s", "2.71 times", "rough", "yours", "Within", path) == []
    lines = [line for line in text.splitlines() if "##" in line]
    assert 3 <= len(lines) <= 5
    rates = [float(line.split("#")[-1].split()[0].replace(",", "")) for line in lines]
    assert rates == sorted(rates, reverse=True)
    with Image.open(path.with_suffix(".png")) as chart:
        assert chart.size == (1200, 675)
    assert len(load([path.with_suffix(".png")]).frame) == 2
    assert CliRunner().invoke(app, [*next_of(text), "--dry-run", "--device", "cpu", "--synthetic"]).exit_code == 0


@pytest.mark.parametrize(("card", "words"), [("RTX 5090", "Within"), ("NVIDIA H100 80GB HBM3", "Below the range")])
def test_a_rate_is_compared_with_published_ones_of_its_card(finished, card, words):
    assert words in finished(200.0, 700.0 if "H100" in card else 2000.0, card=card)[0]


@pytest.mark.parametrize("card", ["NVIDIA Something New", "NVIDIA GB10"])  # GB10: a data sheet, no figures
def test_a_card_without_published_figures_is_still_ranked(finished, card):
    text, _ = finished(200.0, 10539.0, card=card)
    assert lacking(text, "10,539 images/s", "convolutional models", "not in our data", "yours") == []


def test_a_cpu_is_not_ranked_and_its_chart_has_both_rates(finished):
    text, path = finished(6.2, 11.3, device="cpu", card="AMD EPYC")
    assert lacking(text, "1.82 times", "CPUs are not ranked", "RTX 3090", "RTX 4090", path.with_suffix(".png")) == []
    assert "yours" not in text
    with Image.open(path.with_suffix(".png")) as chart:
        assert chart.size == (1200, 675)
    assert CliRunner().invoke(app, next_of(text)).exit_code == 0


def test_a_cpu_without_bf16_is_told_of_fp16(tmp_path):
    cpu, path = REFERENCE | {"device": "cpu"}, tmp_path / "a.csv"
    changes = {"precision": "bf16", "status": "unsupported", "reason": "no bf16", "samples_per_second": None}
    records.append(path, [row(**cpu | FAILED), row(**cpu), row(**cpu | changes)])  # the first one ran again
    text = " ".join(quick_lines(load([path]).frame, path)[0])
    assert lacking(text, "no bf16", "mixed precision gains nothing", path.with_suffix(".png")) == []


def test_neighbours_of_the_first_and_last_card_and_rows_that_are_not_quick(tmp_path):
    assert next(iter(neighbours("mine", 1e6))) == "mine"
    assert list(neighbours("mine", 1.0))[-1] == "mine"
    path = Path(tmp_path / "a.csv")
    records.append(path, [row(), row(**REFERENCE | {"mode": "sampled", "trial": 1})])
    assert quick_lines(load([path]).frame, path) == ([], False)


@pytest.mark.parametrize("other", [{"card": "NVIDIA GeForce RTX 3090", "device": "cuda:1"}, {"processes": 2}])
def test_rates_of_two_cards_or_numbers_of_processes_are_not_mixed(tmp_path, other):
    path, fp16 = tmp_path / "a.csv", {"precision": "fp16"}
    records.append(path, [row(**REFERENCE | change) for change in ({}, fp16 | FAILED, other, fp16 | other)])
    lines, following = results_of(path, {"s1"})
    assert "RTX 2080 Ti (cuda:0, processes=1):" in lines
    assert [line.split()[:2] for line in lines if "images/s   batch" in line] == [["fp32", "500"]]
    assert (lines[0][:7], "compare" in following) == ("fp16 is", True)


@pytest.mark.parametrize(("change", "why"), [
    ({"marks": "throttled"}, "mark"),
    ({"batch_size": 8}, "64"),
    ({"memory_format": "contiguous"}, "memory_format=auto"),
])  # fmt: skip
def test_what_published_figures_do_not_describe_is_not_ranked(finished, change, why):
    text, path = finished(700.0, 1900.0, card="NVIDIA GeForce RTX 4090", **change)
    assert lacking(text, "2.71 times", "Not ranked", why, path.with_suffix(".png")) == []
    assert "yours" not in text
    assert "compare" in next_of(text)


def twice_as_fast_in_fp16(trial):
    case = trial["case"]
    return Measurement(
        "ok", seconds=20.0 if case["precision"] == "fp32" else 10.0, epochs=1, samples=8,
        samples_per_second=500.0 if case["precision"] == "fp32" else 1000.0,
        peak_memory_bytes=(case["batch_size"] + 8) * 10**7, resting_memory_bytes=10**7,
        memory_format="channels_last",
    )  # fmt: skip


@pytest.fixture
def resnet18(tmp_path, monkeypatch, capsys):
    """Returns the output and the rows of a quick run of ResNet-18 on the first of these devices."""
    monkeypatch.setattr("gpubench.hardware.host.reference_seconds", lambda: 0.1)
    monkeypatch.setattr(
        "gpubench.runner.session.readers", lambda devices: dict.fromkeys(device.device for device in devices)
    )
    monkeypatch.chdir(tmp_path)

    def quick(*devices, **options):
        lines, out = [], tmp_path / "a.csv"
        chosen = {"models": ("resnet18",), "device": devices[0].device, "synthetic": True, "rank": True} | options
        machine = answering(twice_as_fast_in_fp16, lambda: devices)
        summary = run(Options(mode="quick", out=out, **chosen), lines.append, run_child=machine)
        assert print_results(summary) == 0
        return "\n".join([*lines, *capsys.readouterr()]), load([out]).frame

    return quick


CARD = Device("cuda:0", "cuda", "NVIDIA GeForce RTX 4090", 2**34, "8.9", "1", "aa")
CPU = Device("cpu", "cpu", "Some CPU", 2**34, device_hash="cc")


def test_a_quick_run_of_resnet_ends_with_the_rank_of_the_card(resnet18):
    text, rows = resnet18(CARD, CPU, batch="64", settings={"image_size": "32"})
    assert list(rows["suite"] + " " + rows["precision"]) == ["resnet fp32", "resnet fp16", "reference fp16"]
    assert "image_size=224" in rows["params"].iloc[2]
    assert lacking(text, "2.00", "yours", "published", "next: gpubench run") == []


def test_unsupported_cases_are_not_counted_and_next_is_report(resnet18):
    text, rows = resnet18(replace(CPU, unsupported={"bf16": "no bf16 here"}), rank=False)
    assert set(rows["status"]) == {"ok", "unsupported"}
    assert lacking(text, "[1/1] resnet resnet18 fp32", "resnet resnet18 bf16") == []
    assert "] resnet resnet18 bf16" not in text
    assert lacking(text, "resnet18 in fp32 (resnet)", "1 case cannot run: no bf16 here", "next: gpubench report") == []


@pytest.mark.parametrize(("devices", "rank", "lines"), [((CARD, CPU), False, 0), ((CPU,), True, 1)])
def test_without_rank_or_card_there_is_no_trial_of_reference(resnet18, devices, rank, lines):
    text, rows = resnet18(*devices, batch="64", rank=rank)
    assert list(rows["suite"]) == ["resnet", "resnet"]
    assert (text.count("CPUs are not ranked"), "yours" in text) == (lines, False)
