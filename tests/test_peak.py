"""Measured peaks: what is kept and for whom, and the command."""

import json
import os
from dataclasses import asdict, replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from facts import lacking

from gpubench.cli import peak
from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState, Processes, Reading
from gpubench.runner import measured_peaks
from gpubench.runner.measured_peaks import Peak
from gpubench.runner.process import Outcome
from gpubench.worker.measure_peak import ACCELERATOR_COPY_BYTES, SIDES, copy_bytes, fastest_product, l3_bytes

CPU = Device("cpu", "cpu", "Some CPU", 8 * 2**30, "", "", "abc", {})
CARD = Device("cuda:0", "cuda", "Tesla V100-SXM2-16GB", 16 * 2**30, "7.0", "", "def", {})
PEAK = Peak(flops_per_second=1e12, bytes_per_second=1e10, op_seconds=5e-6, side=2048)


def remember(device, torch="2.15", precision="fp32", threads=2):
    measured_peaks._store(measured_peaks._key(device, torch, precision, threads), PEAK)


def test_a_peak_is_known_to_what_it_was_measured_with():
    remember(CPU)
    assert measured_peaks.stored(CPU, "2.15", "fp32", 2) == PEAK
    assert measured_peaks.stored(CPU, "2.15", "bf16", 2) is None
    assert measured_peaks.stored(CPU, "2.14", "fp32", 2) is None
    assert measured_peaks.stored(CPU, "2.15", "fp32", 1) is None
    assert measured_peaks.stored(replace(CPU, device_hash="xyz"), "2.15", "fp32", 2) is None
    remember(CARD, threads=0)
    assert measured_peaks.stored(CARD, "2.15", "fp32", 4) == PEAK
    nameless = replace(CPU, device_hash="")
    remember(nameless)
    assert measured_peaks.stored(nameless, "2.15", "fp32", 2) is None
    remember(CPU)
    kept = json.loads(measured_peaks.cache_file().read_text())
    measured_peaks.cache_file().write_text(json.dumps({key: {**kept[key], "side": "x"} for key in kept}))
    assert measured_peaks.stored(CPU, "2.15", "fp32", 2) is None


@pytest.mark.parametrize("changed", ["power", "driver", "method"])
def test_a_cards_peak_is_that_of_its_power_limit_driver_and_method(monkeypatch, changed):
    watts = [300.0]
    state = lambda: SimpleNamespace(power_limit_watts=watts[0])  # noqa: E731
    monkeypatch.setattr(measured_peaks, "readers", lambda devices: {"cuda:0": SimpleNamespace(state=state)})
    remember(CARD)
    assert measured_peaks.stored(CARD, "2.15", "fp32", 0) == PEAK
    watts[0] = 200.0 if changed == "power" else 300.0
    monkeypatch.setattr(measured_peaks, "METHOD", "another" if changed == "method" else measured_peaks.METHOD)
    card = replace(CARD, driver="600.1") if changed == "driver" else CARD
    assert measured_peaks.stored(card, "2.15", "fp32", 0) is None


@pytest.mark.parametrize("text", ["", "[]", "not JSON", '{"a": 1}', "\x00"])
def test_a_broken_cache_is_an_empty_one(text):
    measured_peaks.cache_file().parent.mkdir(parents=True)
    measured_peaks.cache_file().write_text(text)
    assert measured_peaks.stored(CPU, "2.15", "fp32", 2) is None
    remember(CPU)
    assert measured_peaks.stored(CPU, "2.15", "fp32", 2) == PEAK


def test_the_measured_peak_stands_beside_the_listed_one_if_there_is_one():
    lines = [(CARD, "fp16", replace(PEAK, flops_per_second=1e14)), (CPU, "bf16", "no bf16 here")]
    card, cpu = ({column.name: value for column, value in peak.line_of(*line)} for line in lines)
    assert (card["TFLOP/s"], card["listed"], card["share"]) == (100, 125, 0.8)
    assert (cpu["TFLOP/s"], cpu["notes"]) == (None, "no bf16 here")
    assert "Volta" in peak.source(CARD) or "V100" in peak.source(CARD)
    assert "peak: unknown" in peak.source(CPU)


@pytest.mark.e2e
def test_a_precision_that_the_device_lacks_is_a_line_and_exit_code_4(cli_process):
    done = cli_process("peak", "--device", "cpu", "--precision", "tf32")
    assert done.returncode == 4
    assert "tf32" in done.stdout


class Busy:
    """A card on which another process computes."""

    def read(self):
        return Reading()

    def processes(self):
        return Processes(frozenset({os.getpid(), 1}), frozenset())

    def state(self):
        return CardState()


def measured(monkeypatch, card, rates):
    """The peak that a child answers with `rates`, whether it was kept, and what was said."""

    def run_child(task, *, on_wake, **_):
        on_wake(os.getpid())
        return Outcome("answered", 1.0, {"rates": rates})

    said = []
    monkeypatch.setattr(measured_peaks, "readers", lambda devices: {"cuda:0": card}, raising=False)
    monkeypatch.setattr("gpubench.hardware.host.all_processes_visible", lambda: True)
    found = measured_peaks.measure(CARD, "2.15", "fp32", 0, 0.0, said.append, run_child)
    return found, measured_peaks.stored(CARD, "2.15", "fp32", 0), said


def test_a_peak_under_foreign_load_is_not_kept(monkeypatch):
    found, kept, said = measured(monkeypatch, Busy(), asdict(PEAK))
    assert (found, kept) == (replace(PEAK, shared=True), None)
    assert lacking(said[0], "other programs", "cuda:0", "fp32") == []


def test_which_products_are_tried():
    rates = dict.fromkeys(SIDES, 1e13) | {256: 0.88e9}
    side, best = fastest_product(lambda side: rates[side])
    assert (side, best) == (512, 1e13)

    def rate(side):
        if side > 1024:
            raise torch.OutOfMemoryError("full")
        return 1e12 * side

    assert fastest_product(rate) == (1024, 1e12 * 1024)
    # fp16 on a CPU without a kernel for it: a product of 1,024 takes seconds, and each is repeated.
    tried = []

    def rate(side):
        tried.append(side)
        return 4e8

    assert fastest_product(rate) == (256, 4e8)
    assert set(tried) == {256}
    assert sum(2 * side**3 / 4e8 for side in tried) < 10


def test_a_copy_has_room_and_is_of_the_usual_size_where_the_free_memory_is_unknown(monkeypatch):
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 8 * 2**30))
    assert 2 * copy_bytes(torch.device("cuda:0")) < 2**30
    monkeypatch.setattr(torch.cuda, "mem_get_info", Mock(side_effect=RuntimeError("invalid argument")))
    assert copy_bytes(torch.device("cuda:0")) == ACCELERATOR_COPY_BYTES
    monkeypatch.setattr("gpubench.worker.measure_peak.l3_bytes", lambda: 2**29)
    monkeypatch.setattr("gpubench.worker.measure_peak.memory_for_files", lambda: 2**40)
    assert copy_bytes(torch.device("cpu")) == 2**29


def test_l3_caches_that_cpus_share_count_once(tmp_path):
    for name, shared, size in (("cpu0", "0-1", "98304K"), ("cpu1", "0-1", "98304K"), ("cpu2", "2", "32768K")):
        (cache := tmp_path / name / "cache" / "index3").mkdir(parents=True)
        (cache / "shared_cpu_list").write_text(shared)
        (cache / "size").write_text(f"{size}\n")
    assert l3_bytes(tmp_path) == 128 * 2**20
