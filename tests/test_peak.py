"""Measured peaks: what is kept and for whom, and the command."""

import json
from dataclasses import replace

import pytest

from gpubench import ceiling
from gpubench.measuring import peak
from gpubench.measuring.environment import Device
from gpubench.measuring.peak import Peak

CPU = Device("cpu", "cpu", "Some CPU", 8 * 2**30, "", "", "abc", {})
CARD = Device("cuda:0", "cuda", "Tesla V100-SXM2-16GB", 16 * 2**30, "7.0", "", "def", {})
PEAK = Peak(flops_per_second=1e12, bytes_per_second=1e10, op_seconds=5e-6, side=2048)


def remember(device, torch="2.15", precision="fp32", threads=2):
    peak._remember(peak._key(device, torch, precision, threads), PEAK)


def test_a_peak_is_known_to_the_device_torch_precision_and_threads_it_was_measured_with():
    remember(CPU)
    assert peak.known(CPU, "2.15", "fp32", 2) == PEAK
    assert peak.known(CPU, "2.15", "bf16", 2) is None
    assert peak.known(CPU, "2.14", "fp32", 2) is None
    assert peak.known(CPU, "2.15", "fp32", 1) is None
    assert peak.known(replace(CPU, device_hash="xyz"), "2.15", "fp32", 2) is None


def test_threads_do_not_matter_to_a_card():
    remember(CARD, threads=0)
    assert peak.known(CARD, "2.15", "fp32", 4) == PEAK


def test_a_device_without_identity_is_measured_each_time():
    nameless = replace(CPU, device_hash="")
    remember(nameless)
    assert peak.known(nameless, "2.15", "fp32", 2) is None


@pytest.mark.parametrize("text", ["", "[]", "not JSON", '{"a": 1}', "\x00"])
def test_a_broken_cache_is_an_empty_one(text):
    peak.cache_file().parent.mkdir(parents=True)
    peak.cache_file().write_text(text)
    assert peak.known(CPU, "2.15", "fp32", 2) is None
    remember(CPU)
    assert peak.known(CPU, "2.15", "fp32", 2) == PEAK


def test_an_entry_of_another_version_is_measured_anew():
    remember(CPU)
    kept = json.loads(peak.cache_file().read_text())
    peak.cache_file().write_text(json.dumps({key: {**kept[key], "side": "x"} for key in kept}))
    assert peak.known(CPU, "2.15", "fp32", 2) is None


@pytest.mark.parametrize(
    ("precision", "base"), [("fp32", "fp32"), ("tf32", "tf32"), ("fp16-master", "fp16"), ("fp16-pure", "fp16")]
)
def test_old_style_mixed_precisions_multiply_as_fp16(precision, base):
    assert peak.multiplied_in(precision) == base


def test_the_measured_peak_stands_beside_the_listed_one():
    shown = ceiling.table([(CARD, "fp16", replace(PEAK, flops_per_second=1e14)), (CPU, "bf16", "no bf16 here")])
    cells = {column.header: list(column.cells) for column in shown.columns}
    assert cells["TFLOP/s"] == ["100", ""]
    assert cells["listed"] == ["125", ""]
    assert cells["share"] == ["80%", ""]
    assert cells["notes"] == ["", "no bf16 here"]
    assert "Volta" in ceiling.source(CARD) or "V100" in ceiling.source(CARD)


def test_an_unknown_card_says_so():
    assert "peak: unknown" in ceiling.source(CPU)


@pytest.mark.e2e
def test_the_command_measures_remembers_and_prints(cli_process):
    done = cli_process("peak", "--device", "cpu", "--precision", "fp32", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "peak: unknown" in done.stdout
    kept = list(json.loads(peak.cache_file().read_text()).values())
    assert len(kept) == 1
    assert kept[0]["flops_per_second"] > 1e8
    assert kept[0]["bytes_per_second"] > 1e8
    assert 1e-8 < kept[0]["op_seconds"] < 1e-2


@pytest.mark.e2e
def test_a_precision_that_the_device_lacks_is_a_line_and_exit_code_4(cli_process):
    done = cli_process("peak", "--device", "cpu", "--precision", "tf32")
    assert done.returncode == 4
    assert "tf32" in done.stdout
