"""Listed peaks: cards by their driver names, their variants, and every figure computed a second time."""

import pytest

from gpubench.studies.listed_peaks import GIB, cards, find, tables

# The name that the driver gives, its memory in GiB, then TFLOP/s (fp32, tf32, fp16) and GB/s, from the makers'
# SMs x boost clock x FLOP per clock and SM. fp32 of Hopper and B200 is left out: it is published for a higher clock.
KNOWN = [
    ("NVIDIA GeForce GTX 1080 Ti", 11, 11.3, None, 11.3, 484),
    ("Tesla V100-SXM2-16GB", 16, 15.7, None, 125.3, 900),
    ("Tesla T4", 15, 8.1, None, 65.1, 320),
    ("NVIDIA GeForce RTX 2080 Ti", 11, 13.4, None, 53.8, 616),
    ("NVIDIA TITAN RTX", 24, 16.3, None, 130.5, 672),
    ("NVIDIA A100-SXM4-40GB", 40, 19.5, 155.9, 311.9, 1555),
    ("NVIDIA A100-SXM4-80GB", 80, 19.5, 155.9, 311.9, 2039),
    ("NVIDIA A10", 22, 31.2, 62.5, 125.0, 600),
    ("NVIDIA A40", 45, 37.4, 74.8, 149.7, 696),
    ("NVIDIA RTX A6000", 48, 38.7, 77.4, 154.8, 768),
    ("NVIDIA GeForce RTX 3090", 24, 35.6, 35.6, 71.2, 936),
    ("NVIDIA GeForce RTX 4090", 24, 82.6, 82.6, 165.2, 1008),
    ("NVIDIA L4", 22, 30.3, 60.6, 121.2, 300),
    ("NVIDIA L40S", 45, 91.6, 183.2, 366.4, 864),
    ("NVIDIA RTX 6000 Ada Generation", 48, 91.1, 182.1, 364.2, 960),
    ("NVIDIA H100 80GB HBM3", 80, None, 494.7, 989.4, 3350),
    ("NVIDIA H200", 140, None, 494.7, 989.4, 4800),
    ("NVIDIA H100 PCIe", 80, None, 378.2, 756.4, 2000),
    ("NVIDIA B200", 180, None, 1121.5, 2243.0, 7700),
    ("NVIDIA GeForce RTX 5090", 32, 104.8, 104.8, 209.5, 1792),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 96, 126.0, 251.9, 503.8, 1792),
]


@pytest.mark.parametrize(("name", "gib", "fp32", "tf32", "fp16", "bandwidth"), KNOWN, ids=lambda value: str(value))
def test_a_known_card_by_the_name_its_driver_gives(name, gib, fp32, tf32, fp16, bandwidth):
    card = find(name, gib * GIB)
    assert card, name
    for precision, tflops in {"fp32": fp32, "tf32": tf32, "fp16": fp16, "fp16-master": fp16}.items():
        if tflops:
            assert card.peak(precision) == pytest.approx(tflops * 1e12, rel=0.02), precision
    assert card.bytes_per_second == pytest.approx(bandwidth * 1e9, rel=0.02)


VARIANTS = {
    "Tesla V100-SXM2-32GB": "Tesla V100 SXM2",
    "Tesla V100-PCIE-16GB": "Tesla V100 PCIe",
    "Tesla V100S-PCIE-32GB": "Tesla V100S PCIe",
    "Tesla P100-PCIE-16GB": "Tesla P100 PCIe",
    "Tesla P100-SXM2-16GB": "Tesla P100 SXM2",
    "A100-SXM4-40GB": "A100 SXM4 40 GB",
    "NVIDIA A100-PCIE-40GB": "A100 PCIe 40 GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80 GB",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA GH200 480GB": "GH200 96 GB",
    "NVIDIA GeForce RTX 2080": "GeForce RTX 2080",
    "NVIDIA GeForce RTX 2080 SUPER": "GeForce RTX 2080 SUPER",
    "NVIDIA GeForce RTX 4090 D": "GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "GeForce RTX 4070 Ti SUPER",
    "NVIDIA RTX 4000 SFF Ada Generation": "RTX 4000 SFF Ada Generation",
    "AMD Instinct MI300X": "AMD Instinct MI300X",
    "AMD Instinct MI300X VF": "AMD Instinct MI300X",
    "AMD Radeon RX 9070 XT": "AMD Radeon RX 9070 XT",
    "NVIDIA GB10": "GB10",
    "NVIDIA GB300": "GB300",
    "NVIDIA A10G": "A10G",
}


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


def test_every_row_has_a_source_and_a_name_of_its_own():
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


def test_no_name_fits_two_rows():
    names = [name for name, *_ in KNOWN] + list(VARIANTS)
    for name in names:
        fits = {card.name for gib in range(1, 300) for card in [find(name, gib * GIB)] if card}
        assert len(fits) == 1, name
