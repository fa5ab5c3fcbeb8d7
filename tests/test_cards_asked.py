"""Options of `gpubench cards` (names, prices, classes), and the comparison of two cards."""

import json
import math
import re

import pytest

from gpubench.analysis.metrics import price_of
from gpubench.errors import UserError
from gpubench.studies.cards import REFERENCE, options, ranking, versus
from gpubench.studies.cards.figures import published
from gpubench.studies.cards.model import fitted_model

NAMES = sorted({group.card for group in published().groups})


def answer(one: str, other: str, classes=ranking.DEFAULT_CLASSES, families=("convolution", "matmul"), dollars=None):
    """Return the headline, the notes and the lines of the table for two cards."""
    result = versus.answer(fitted_model(), published(), (one, other), classes, families, dollars)
    (section,) = result.sections
    return result.headline, " ".join(section.notes), section.tables[1].lines if len(section.tables) > 1 else ()


@pytest.mark.parametrize(
    ("wish", "card"),
    [
        ("RTX 4090", "RTX 4090"),
        ("4090", "RTX 4090"),
        ("nvidia geforce rtx 4090", "RTX 4090"),
        ("1080ti", "GTX 1080 Ti"),
        ("Tesla T4", "T4"),
        ("a100 sxm4 80gb", "A100-SXM4-80GB"),
        ("H100 SXM", "H100 80GB HBM3"),
        ("V100 16GB", "V100-SXM2-16GB"),
        ("6000 ada", "RTX 6000 Ada"),
    ],
)
def test_find_card(wish, card):
    assert options.find_card(wish, NAMES) == card


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ("RTX 2080 Super", "there is RTX 2080 Super Max-Q"),
        ("RTX 2070", "there is RTX 2070 Max-Q"),
        ("RTX 5060", "there is RTX 5060 Laptop"),
        ("L40", "there is L40S"),
        ("RX 6800", "there is Radeon RX 6800 XT"),
        ("K8", "there is K80"),
        ("MI325", "there is MI325X"),
        ("A100 40GB", r"several cards match: A100-PCIE-40GB and A100-SXM4-40GB"),
        ("A100", r"several cards match: .*A100-SXM4-40GB and A100-SXM4-80GB"),
        ("RTX 4095", r"did you mean RTX 4090\?"),
        ("", "no published figure"),
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
        ("L4", "NVIDIA L4", "NVIDIA L40S"),
        ("4090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 D"),
        ("RTX 3090", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090 Ti"),
        ("4070", "NVIDIA GeForce RTX 4070", "NVIDIA GeForce RTX 4070 SUPER"),
        ("RTX 2080", "NVIDIA GeForce RTX 2080", "NVIDIA GeForce RTX 2080 Super with Max-Q Design"),
    ],
)
def test_a_price_is_that_of_its_card_and_of_no_other(entry, card, other):
    assert price_of(card, {entry: 1.0}) == 1.0
    assert math.isnan(price_of(other, {entry: 1.0}))
    assert price_of(other, {entry: 1.0, other: 2.0}) == 2.0


def test_prices_are_looked_up_once_and_unknown_names_are_printed(cli, tmp_path):
    (tmp_path / "p.toml").write_text('A10 = 0.6\nH20 = 1.0\nL4 = 0.7\n"NVIDIA GeForce RTX 4090" = 0.5\nA100 = 2\n')
    done = cli("cards", "--price", "p.toml", "--relative-to", "A10", "--precision", "half")
    assert done.returncode == 0, done.stderr
    priced = re.findall(r"^ (\S.*?) {2,}.* (\d\.\d\d) +\S+$", done.stdout, re.MULTILINE)
    assert dict(priced) == {"H20": "1.00", "RTX 4090": "0.50", "A10": "0.60"}  # and L4 has no figure in half
    assert "--price: A100: no such card, or several" in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 79
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "other.toml").write_text('"GTX 480" = 1.0\n')
    for name in ("empty", "other"):
        done = cli("cards", "--price", f"{name}.toml")
        assert done.returncode == 2
        assert "no card" in done.stderr


def test_cards_without_a_price_are_named(cli, tmp_path):
    (tmp_path / "p.toml").write_text('"RTX 4090" = 0.40\nMI50 = 0.1\n')
    text = " ".join(cli("cards", "4090", "3090", "--price", "p.toml").stdout.split())
    assert "RTX 3090 has no price" in text
    done = cli("cards", "--price", "p.toml", "--precision", "single")
    assert " MI50 " in done.stdout  # beyond the best known
    assert "A100-SXM4-80GB has no price" in " ".join(done.stdout.split())


def test_dollars_are_counted_where_cards_have_a_price(cli, tmp_path):
    (tmp_path / "prices.toml").write_text('"RTX 4090" = 0.40\n"RTX 3090" = 0.20\n"RTX 3060" = 0.1\n')
    ratio = fitted_model().ratio("RTX 4090", "RTX 3090", "half").value / 2
    text = " ".join(cli("cards", "4090", "3090", "--price", "prices.toml").stdout.split())
    assert f"At 0.4 and 0.2 dollars an hour RTX 4090 trains {ratio:.2f} times as much for a dollar" in text
    table = cli("cards", "--relative-to", "3090", "--price", "prices.toml").stdout
    assert re.search(rf"RTX 4090 .* 0\.40 +{ratio:.2f}$", table, re.MULTILINE)
    assert re.search(r"RTX 3060 +- .* 0\.10$", table, re.MULTILINE)  # no figure in half: nothing per dollar
    assert max(map(len, table.splitlines())) <= 79


def test_every_card_is_on_one_table(cli):
    for more in ([], ["--relative-to", "L4"], ["--relative-to", "B200"]):
        short, out = cli("cards", *more).stdout, cli("cards", "--all", *more).stdout
        assert len(re.findall("^ card ", short, re.MULTILINE)) == 1
        lines = [line for line in out.splitlines() if line.startswith(" ")]
        assert [line.split()[0] for line in lines].count("card") == 1
        assert all(f" {line.card} " in out for line in ranking.rank(fitted_model()).lines)
        assert max(map(len, out.splitlines())) <= 79


def test_the_first_tier_is_named_and_cards_of_the_class_are_counted():
    model = fitted_model()
    usual, fastest, slow = (ranking.headline(ranking.rank(model, card)) for card in (REFERENCE, "B200", "L4"))
    assert "B200 is 1.00" not in fastest
    assert "H200 is 0." in fastest
    assert all(text.startswith("Of 65 cards B200, H200, GH200 480GB or") for text in (usual, fastest, slow))


def test_two_cards_are_compared_with_every_pair_of_figures(cli):
    done = cli("cards", "RTX 4090", "RTX 3090", "--all")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    value = fitted_model().ratio("RTX 4090", "RTX 3090", "half").value
    assert text.startswith(f"RTX 4090 trains {value:.2f} times as fast as RTX 3090 in half precision (90%: ")
    assert f"is worth {value:.2f} times the price of RTX 3090" in text
    pairs = versus.pairs_of(published().groups, "RTX 4090", "RTX 3090")
    low, high = min(pair.ratio for pair in pairs), max(pair.ratio for pair in pairs)
    assert f"4 sources have both: {len(pairs)} ratios from {low:.2f} to {high:.2f}, median 1." in text
    assert f"All {len(pairs)} agree" in text
    ratios = [float(ratio) for ratio in re.findall(r"(?:half|single) +(\d\.\d\d) ", done.stdout)]
    assert ratios == sorted(ratios)
    assert len(ratios) == len(pairs)
    for pair in pairs:
        assert f"{pair.one.source}@{pair.one.figures[0].commit}" in done.stdout
        assert pair.one.workload in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    short = cli("cards", "RTX 4090", "RTX 3090").stdout
    assert all(f" {ratio:.2f} " in short for ratio in (low, high))  # both ends


def test_pairs_that_disagree_come_first(cli):
    text = " ".join(cli("cards", "V100-SXM2-16GB", "P100-PCIE-16GB", "--precision", "single").stdout.split())
    assert re.search(r"Disagreeing: 3 of \d+ \(stanford-futuredata/gavel\)", text)
    first = re.search(r"gavel-\S+ batch \d+ \(a\) (0\.\d\d) ", text)
    assert first
    assert float(first[1]) < 1


@pytest.mark.parametrize(("one", "other"), [("GTX 1080 Ti", "RTX 2070 Max-Q"), ("RTX 3080", "V100-SXM2-32GB")])
def test_a_pair_is_compared_with_the_ratio_of_its_class(one, other):
    """The answer is below 1 in half precision and above it in fp32."""
    model = fitted_model()
    values = {kind: model.ratio(one, other, kind).value for kind in ranking.DEFAULT_CLASSES}
    assert values["half"] < 1 < values["single"]
    _, text, lines = answer(one, other)
    contrary = [(ratio >= 1) != (values[kind] >= 1) for _, kind, ratio, *_ in lines]
    assert contrary == sorted(contrary, reverse=True)
    assert sum(contrary) <= 1
    counted = re.search(r"Disagreeing: (\d+) of", text)
    assert counted is None or int(counted[1]) == sum(contrary)


def test_cards_that_are_too_close_to_call_have_no_worth():
    text, more, lines = answer("A100-PCIE-40GB", "A100-SXM4-40GB", ["half"])
    assert text.startswith("A100-PCIE-40GB and A100-SXM4-40GB are too close to call in half precision (1.0")
    assert "worth" not in more
    assert f"{len(lines)} ratios from 0.88 to 0.96, median 0.89; {len(lines)} of them are below 1" in more


def test_where_families_differ_both_ratios_are_printed():
    _, text, _ = answer("A100-SXM4-80GB", "V100-SXM2-32GB")
    assert re.search(r"FP32 is the mean of two different ratios: 2\.8\d times on convolution models .* on matmul", text)
    _, text, _ = answer("RTX 4090", "RTX 3090")
    assert "the mean of two" not in text


def test_pairs_of_two_versions_have_a_caveat(cli):
    lines = answer("GH200 480GB", "H200")[2]
    assert lines
    assert all(re.search(r"torch \S+ and torch \S+", line[5]) for line in lines)


def test_a_card_without_figures_of_a_family_is_named():
    _, text, _ = answer("TITAN V", "B200", ["half"], ["matmul"])
    assert "TITAN V has no figure of matmul models in half precision: estimated from its other figures" in text
    _, text, _ = answer("RTX 4070", "RTX 4060", ["half"])
    assert "RTX 4060 has no figure of matmul models in half precision" in text
    model = fitted_model()
    for family in ("convolution", "matmul"):
        for line in ranking.rank(model, families=[family]).ranked:
            assert any((group.card, group.kind, group.family) == (line.card, "half", family) for group in model.groups)


def test_cards_without_a_class_in_common_are_still_compared(cli):
    text = " ".join(cli("cards", "4060", "3060").stdout.split())
    assert text.startswith("RTX 4060 and RTX 3060 are too close to call")
    assert "No source has both" in text
    assert "RTX 3060 has no figure in half precision: estimated from its other figures and its architecture" in text
    text = " ".join(cli("cards", "RTX 3060", "B200").stdout.split())
    assert text.startswith("RTX 3060 trains 0.")
    assert "RTX 3060 has no figure in half precision" in text


def test_unknown_cards_and_options_are_refused(cli):
    done = cli("cards", "RTX 4095")
    assert done.returncode == 2
    assert "did you mean RTX 4090?" in done.stderr
    for wrong in (["4090", "RTX 4090"], ["--sources", "4090"], ["--precision", "fp8"], ["--family", "cnn"]):
        assert cli("cards", *wrong).returncode == 2


@pytest.mark.parametrize(
    "wrong",
    [
        ["4090", "3090", "--relative-to", "nonsense"],
        ["4090", "3090", "--relative-to", "A10"],
        ["4090", "3090", "--charts", "out"],
        ["4090", "--price", "p.toml"],
        ["K80", "--precision", "strict"],
        ["--sources", "--family", "matmul"],
        ["--sources", "--price", "p.toml"],
    ],
)
def test_an_option_without_effect_is_refused_before_anything_is_printed(cli, tmp_path, wrong):
    (tmp_path / "p.toml").write_text('"RTX 4090" = 0.4\n')
    done = cli("cards", *wrong)
    assert (done.returncode, done.stdout) == (2, "")


def test_one_card_begins_with_its_rank(cli):
    text = " ".join(cli("cards", "4090").stdout.split())
    ratio = fitted_model().ratio("RTX 4090", "A100-SXM4-80GB", "half")
    assert re.match(rf"RTX 4090 is number \d+ of 65 cards in half precision, {ratio.value:.2f} times as fast as", text)
    out = cli("cards", "4090", "--precision", "half", "--family", "matmul").stdout
    assert "resnet50" not in out
    assert " single " not in out
    assert cli("cards", "L4").stdout.startswith("L4 is number")


def test_other_formats_say_that_intervals_are_of_90_percent(cli):
    for more, table in (([], 0), (["4090", "3090"], 0)):
        whole = json.loads(cli("cards", *more, "--format", "json").stdout)
        columns = whole["sections"][0]["tables"][table]["columns"]
        assert {column["level"] for column in columns if "level" in column} == {90}
    assert "half (90%)" in cli("cards", "--format", "markdown").stdout


def test_of_a_source_figures_are_counted_as_in_the_list_of_sources(cli):
    listed = re.search(r"lambdal/deeplearning-benchmark +\S+ +\d+ +(\d+)", cli("cards", "--sources").stdout)
    assert f": {listed[1]} figures of" in cli("cards", "--source", "lambdal/deep").stdout
    assert "00000000" not in cli("cards", "--source", "lambdal/deep", "--format", "csv").stdout
