"""Options of `gpubench cards` (names, prices, classes), and the comparison of two cards."""

import math
import re

import pytest
from facts import lacking

from gpubench.analysis.metrics import price_of
from gpubench.errors import UserError
from gpubench.studies.cards import REFERENCE, options, versus
from gpubench.studies.cards.figures import data_sheets, published
from gpubench.studies.cards.ratio import pairs_of, published_speeds

NAMES = list(data_sheets())


def answer(one: str, other: str, classes=options.DEFAULT_CLASSES, dollars=None):
    """Return the headline, the notes and the lines of the table for two cards."""
    result = versus.answer((one, other), classes, dollars)
    (section,) = result.sections
    return result.headline, " ".join(section.notes), section.tables[1].lines if len(section.tables) > 1 else ()


@pytest.mark.parametrize(("wish", "card"), [
    ("RTX 4090", "RTX 4090"), ("4090", "RTX 4090"), ("nvidia geforce rtx 4090", "RTX 4090"),
    ("1080ti", "GTX 1080 Ti"), ("Tesla T4", "T4"), ("a100 sxm4 80gb", "A100-SXM4-80GB"),
    ("H100 SXM", "H100 80GB HBM3"), ("RTX 2080 Super", "RTX 2080 SUPER"),
])  # fmt: skip
def test_find_card(wish, card):
    assert options.find_card(wish, NAMES) == card
    assert options.cards_in(wish.split(), NAMES) == [card]


def test_cards_need_no_quotes():
    expected = {
        "RTX 4090 RTX 3090": ["RTX 4090", "RTX 3090"],
        "4090 D 3090": ["RTX 4090 D", "RTX 3090"],
        "RTX 3080 Ti 3080": ["RTX 3080 Ti", "RTX 3080"],
        "a100 sxm4 80gb H100 PCIe L40S T4": ["A100-SXM4-80GB", "H100 PCIe", "L40S", "T4"],
    }
    assert {words: options.cards_in(words.split(), NAMES) for words in expected} == expected


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ("RX 6800", r"did you mean Radeon RX 6800 XT\?"),
        ("K8", r"did you mean K80\?"),
        ("A100 40GB", r"there are A100-PCIE-40GB and A100-SXM4-40GB"),
        ("A100", r"there are .*A100-SXM4-40GB and A100-SXM4-80GB"),
        ("RTX 4095", r"did you mean RTX 4090\?"),
        ("", "^no name: no card of our data"),
    ],
)
def test_part_of_a_name_does_not_match_another_card(wish, named):
    with pytest.raises(UserError, match=named):
        options.find_card(wish, NAMES)


@pytest.mark.parametrize(
    ("entry", "card", "other"),
    [
        ("A10", "NVIDIA A10", "NVIDIA A100-SXM4-80GB"),
        ("H20", "NVIDIA H20", "NVIDIA H200"),
        ("4090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 D"),
        ("4070", "NVIDIA GeForce RTX 4070", "NVIDIA GeForce RTX 4070 SUPER"),
        ("RTX 2080", "NVIDIA GeForce RTX 2080", "NVIDIA GeForce RTX 2080 Super with Max-Q Design"),
    ],
)
def test_a_price_is_that_of_its_card_and_of_no_other(entry, card, other):
    assert price_of(card, {entry: 1.0}) == 1.0
    assert math.isnan(price_of(other, {entry: 1.0}))
    assert price_of(other, {entry: 1.0, other: 2.0}) == 2.0


def test_prices_and_dollars_are_those_of_the_cards_that_they_name(cli, tmp_path):
    (tmp_path / "p.toml").write_text('A10 = 0.6\nH20 = 1.0\nL4 = 0.7\n"NVIDIA GeForce RTX 4090" = 0.5\n')
    out = cli("cards", "--price", "p.toml", "--relative-to", "A10", "--precision", "half").stdout
    priced = re.findall(r"^ (\S.*?) {2,}.* (\d\.\d\d) +\S+$", out, re.MULTILINE)
    assert dict(priced) == {"H20": "1.00", "RTX 4090": "0.50", "A10": "0.60", "L4": "0.70"}
    assert max(map(len, out.splitlines())) <= 79
    (tmp_path / "other.toml").write_text('"GTX 480" = 1.0\n')
    done = cli("cards", "--price", "other.toml")
    assert done.returncode == 2
    assert "no card" in done.stderr
    (tmp_path / "prices.toml").write_text('"RTX 4090" = 0.40\n"RTX 3090" = 0.20\n"RTX 3060" = 0.1\n')
    ratio = published_speeds("half").ratio("RTX 4090", "RTX 3090").value / 2
    text = " ".join(cli("cards", "4090", "3090", "--price", "prices.toml").stdout.split())
    assert lacking(text, 0.4, 0.2, f"{ratio:.2f}", "for a dollar") == []
    table = cli("cards", "--relative-to", "3090", "--price", "prices.toml").stdout
    assert re.search(rf"RTX 4090 .* 0\.40 +{ratio:.2f}$", table, re.MULTILINE)
    assert re.search(r"RTX 3060 .* -  .* 0\.10 ", table, re.MULTILINE)  # no figure in half: estimated
    assert max(map(len, table.splitlines())) <= 79


def test_two_cards_are_compared_with_every_pair_of_figures(cli):
    done = cli("cards", "RTX", "4090", "RTX", "3090", "--all")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    ratio = published_speeds("half").ratio("RTX 4090", "RTX 3090")
    assert text.startswith(f"RTX 4090 trains {ratio.low:.2f} to {ratio.high:.2f} times as fast as RTX 3090 in half")
    assert f"Typically {ratio.value:.2f} times" in text
    pairs = pairs_of(published().groups, "RTX 4090", "RTX 3090")
    ratios = [float(ratio) for ratio in re.findall(r"(?:half|fp32) +(\d\.\d\d) ", done.stdout)]
    assert ratios == sorted(ratios)
    assert len(ratios) == len(pairs)
    for pair in pairs:
        assert f"{pair.one.source}@{pair.one.figures[0].commit}" in done.stdout
        assert pair.one.workload in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    short = cli("cards", "RTX 4090", "RTX 3090").stdout
    assert all(f" {ratio:.2f} " in short for ratio in (ratios[0], ratios[-1]))  # both ends


def test_pairs_outside_of_the_interval_and_of_two_versions_have_a_caveat():
    _, text, lines = answer("RTX 3090", "RTX 2080 Ti", ["half"])
    ratio = published_speeds("half").ratio("RTX 3090", "RTX 2080 Ti")
    outside = [line for line in lines if not ratio.low <= line[2] <= ratio.high]
    assert outside
    source = outside[0][5].partition("@")[0]
    assert f"Outside the interval in half precision: {len(outside)} of {len(lines)} ratios ({source})" in text
    lines = answer("GH200 480GB", "H200")[2]
    assert lines
    assert all(re.search(r"torch \S+ and torch \S+", line[5]) for line in lines)


@pytest.mark.parametrize("wrong", [
    ["RTX 4095"], ["4090", "RTX 4090"], ["--precision", "fp8"], ["4090", "3090", "--relative-to", "A10"],
    ["4090", "--charts", "out"], ["--sources", "4090"], ["--sources", "--price", "p.toml"],
])  # fmt: skip
def test_what_has_no_effect_is_refused_before_anything_is_printed(cli, tmp_path, wrong):
    (tmp_path / "p.toml").write_text('"RTX 4090" = 0.4\n')
    done = cli("cards", *wrong)
    assert (done.returncode, done.stdout) == (2, "")


def test_one_card_begins_with_its_rank_or_is_estimated_and_labelled(cli):
    out = cli("cards", "4090").stdout
    text = " ".join(out.split())
    assert (out.count("\n") <= 25, "Left out" in out, "Left out" in cli("cards", "4090", "--all").stdout) == (1, 0, 1)
    ratio = published_speeds("half").ratio("RTX 4090", REFERENCE)
    assert re.match(
        rf"RTX 4090 has rank \d+ of 65 measured cards in half precision, {ratio.value:.2f} times as fast as", text
    )
    assert " fp32 " not in cli("cards", "4090", "--precision", "half").stdout
    assert cli("cards", "L4").stdout.startswith("L4 has rank")
    text = cli("cards", "RTX", "5080", "4090").stdout
    assert lacking(text, "RTX 5080: no figure", "data sheets", "No source has both") == []
    assert lacking(cli("cards", "L4", "--precision", "half").stdout, "no figure of this card in half precision:") == []
    assert "no figure of this card in half precision, FP32" in " ".join(cli("cards", "RTX 5080").stdout.split())
    assert re.search(r" RTX 5080 .* -  ", cli("cards", "--all").stdout)
    _, text, _ = answer("RTX 3060", "B200")
    assert "RTX 3060: no figure in half precision" in text
