"""Listed peaks: cards by their driver names, their variants, and every figure computed a second time."""

import math

import pytest

from gpubench.studies.listed_peaks import GIB, cards, find, tables

VARIANTS = {
    "Tesla V100-SXM2-32GB": "Tesla V100 SXM2", "Tesla V100S-PCIE-32GB": "Tesla V100S PCIe",
    "Tesla P100-PCIE-16GB": "Tesla P100 PCIe", "A100-SXM4-40GB": "A100 SXM4 40 GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80 GB", "NVIDIA H100 80GB HBM3": "H100 SXM", "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200 SXM", "NVIDIA GH200 480GB": "GH200 96 GB", "NVIDIA GeForce RTX 2080": "GeForce RTX 2080",
    "NVIDIA GeForce RTX 4090 D": "GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "GeForce RTX 4070 Ti SUPER",
    "NVIDIA RTX 4000 SFF Ada Generation": "RTX 4000 SFF Ada Generation", "AMD Instinct MI300X": "AMD Instinct MI300X",
    "AMD Instinct MI300X VF": "AMD Instinct MI300X", "NVIDIA GB10": "GB10", "NVIDIA GB300": "GB300",
    "NVIDIA A10G": "A10G",
}  # fmt: skip


@pytest.mark.parametrize(("name", "card"), VARIANTS.items())
def test_variants_are_different_cards(name, card):
    listed = find(name, 80 * GIB)
    assert listed
    assert listed.name == card


@pytest.mark.parametrize(
    ("gib", "card"), [(9.8, "GeForce RTX 3080"), (11.8, "GeForce RTX 3080 12GB"), (24, None), (None, None)]
)
def test_two_cards_of_one_name_differ_by_their_memory(gib, card):
    listed = find("NVIDIA GeForce RTX 3080", gib and gib * GIB)
    assert (listed and listed.name) == card


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3080 Ti Laptop GPU",
        "NVIDIA GeForce RTX 2080 with Max-Q Design", "Quadro RTX 6000 with Max-Q Design",
        "NVIDIA RTX 4000 Ada Generation Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA A100-SXM-64GB",
        "GRID A100X-40C", "NVIDIA A10-24Q", "NVIDIA H100", "NVIDIA H20", "NVIDIA H800", "Tesla V100-FHHL-16GB",
        "GeForce RTX 2080 Tiger", "AMD EPYC 9B14", "Apple M2", "Intel(R) Data Center GPU Max 1550", "",
    ],
)  # fmt: skip
def test_what_is_not_listed_stays_unknown(name):
    assert find(name, 40 * GIB) is None


def test_every_figure_is_sms_times_clock_times_flop_per_clock():
    table = tables()
    checked = 0
    for row in table["card"]:
        if "sms" not in row:
            continue
        per_clock = dict(
            zip(("fp32", "tf32", "fp16"), table["flop_per_clock_and_sm"][row["flop_per_clock"]], strict=True)
        )
        for precision, tflops in row["tflops"].items():
            flop = per_clock["fp16" if precision == "bf16" else precision]
            computed = flop * row["sms"] * row["clock_mhz"] / 1e6
            if precision == "fp32" and row["flop_per_clock"] in {"hopper", "b200"}:
                assert tflops >= computed
                continue
            assert tflops == pytest.approx(computed, rel=0.02), (row["name"], precision)
            checked += 1
    assert checked > 150


def test_every_row_has_a_source_and_a_name_that_fits_no_other():
    assert len({card.name for card in cards()}) == len(cards()) > 80
    for card in cards():
        assert "https://" in card.source or "NVIDIA" in card.source, card.name
        assert set(card.flops) <= {"fp32", "tf32", "fp16", "bf16"}
        assert "fp32" in card.flops
        assert card.tensor_cores == ("fp16" in card.flops and card.flops["fp16"] > 2 * card.flops["fp32"] * 0.99) or (
            not card.tensor_cores
        ), card.name
    used = {row["source"] for row in tables()["card"]}
    assert used == set(tables()["sources"])
    for name in VARIANTS:
        fits = {card.name for gib in range(1, 300) for card in [find(name, gib * GIB)] if card}
        assert len(fits) == 1, name
    assert find("NVIDIA GeForce RTX 4090", math.nan) == find("NVIDIA GeForce RTX 4090", None)
    assert find("NVIDIA GeForce RTX 4090", math.nan)
