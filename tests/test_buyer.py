"""The buyer's number: a card in mixed precision over another card in fp32, and the user's own rows before others."""

import pytest
from answers import answered, section, table
from facts import lacking
from rows import rows

from gpubench.show.terminal import LINES, screen

OLD = {"card": "NVIDIA GeForce GTX 1080 Ti", "device_hash": "bbbb"}
NEW = {"card": "NVIDIA GeForce RTX 4090", "device_hash": "cccc", "session": "s9"}
PUBLISHED = {"source": "github.com/them/it", "mode": "published", "session": "s0", "device_hash": ""}


def two_cards(trials=1):
    """Two models on two cards in two precisions; in mixed precision the new card is 4 and 6 times as fast."""
    given = []
    for card, factor in (({}, 1.0), (OLD, 2.0)):
        for model, single, mixed in (("resnet18", 60.0, 30.0), ("resnet50", 120.0, 40.0)):
            for precision, seconds in (("fp32", single), ("fp16", mixed)):
                times = [seconds * factor * (1 + at / 500) for at in range(trials)]
                given += rows(times, model=model, precision=precision, **card)
    return given


def test_one_comparison_is_over_card_and_precision_together_on_one_base(tmp_path):
    buyer = section(answered(tmp_path, two_cards()), "buyer")
    (result,) = buyer.results
    assert (result.subject, result.baseline) == ("RTX 2080 Ti mixed", "GTX 1080 Ti fp32")
    assert result.value == pytest.approx((4 * 6) ** 0.5)
    assert lacking(result.said, "RTX 2080 Ti", "mixed precision", "4.90", "GTX 1080 Ti", "fp32") == []
    lines = table(buyer, "minutes")
    assert [line["speedup"] for line in lines] == ["4.00", "6.00", "4.90"]
    assert lines[0]["1080 Ti fp32"] == "2.00"
    means = {"1080 Ti fp32": "1.00x", "1080 Ti mixed": "2.45x", "2080 Ti fp32": "2.00x", "2080 Ti mixed": "4.90x"}
    assert lines[-1] == {"model": "mean", **means, "speedup": "4.90"}
    (result,) = section(answered(tmp_path, two_cards(trials=6)), "buyer").results
    seconds, relative = result.charts
    assert [bar.value for bar in relative.groups[0].bars] == pytest.approx([1.0, 0.5, 0.5, 0.25])
    assert [bar.value for bar in seconds.groups[1].bars] == pytest.approx([240.0, 80.0, 120.0, 40.0], rel=0.02)
    assert all(bar.interval for chart in result.charts for group in chart.groups for bar in group.bars)
    assert relative.groups[0].text == "4.00x"


def test_models_policies_and_precisions_stay_apart_with_figures_of_both_sides(tmp_path):
    given = [
        *two_cards(),
        *rows([90.0], model="m"),
        *rows([900.0], model="m", **OLD),
        *rows([9.0], model="m", precision="fp16"),
    ]
    (result,) = section(answered(tmp_path, given), "buyer").results
    assert lacking(result.said, "4.00", "100.0") == []
    assert any("the mean is" in caveat for caveat in result.caveats)
    largest = {"batch_policy": "max"}
    given = two_cards()
    for card, factor in (({}, 1.0), (OLD, 10.0)):
        for precision, seconds in (("fp32", 60.0), ("fp16", 30.0)):
            given += rows([seconds * factor], model="resnet18", precision=precision, **card, **largest)
        given += rows([20.0 * factor], model="resnet18", precision="bf16", **card)
    sections = answered(tmp_path, given).sections
    results = [result for one in sections if one.study == "buyer" for result in one.results]
    assert sorted(round(result.value, 2) for result in results) == [4.9, 6.0, 20.0]
    assert len({result.settings for result in results}) == 3, "words tell them apart"
    given = [*two_cards(), *rows([7200.0], suite="mine"), *rows([3600.0], suite="mine", precision="fp16")]
    text = "\n".join(screen(answered(tmp_path, given)))
    assert lacking(text, "35/69 s", "60/120 min") == []
    rates = [*rows([1.0], samples_per_second=800.0), *rows([1.0], samples_per_second=400.0, suite="x", **OLD)]
    rates += rows([1.0], samples_per_second=250.0, suite="x")
    assert lacking("\n".join(screen(answered(tmp_path, rates, metric="rate"))), 250, 400, "1.60") == []


@pytest.mark.parametrize("changes", [{"precision": "fp32"}, {"card": "one", "device_hash": "d"}])
def test_one_card_or_one_precision_has_none(tmp_path, changes):
    given = [row for value in (100.0, 50.0) for row in rows([value], **{"precision": "fp16", **changes})]
    assert "buyer" not in {section.study for section in answered(tmp_path, given).sections}


@pytest.mark.parametrize("trials", [1, 6])
def test_two_cards_are_a_table_of_models_with_the_buyers_number(tmp_path, trials):
    lines = screen(answered(tmp_path, two_cards(trials)))
    assert len(lines) <= LINES
    assert sum(line.startswith(" resnet") for line in lines) == 2
    text = " ".join(" ".join(lines).split())
    assert lacking(text, "RTX 2080 Ti in mixed precision", "4.90", "GTX 1080 Ti in fp32") == []
    assert ("95%" in text) == (trials == 6)


def test_own_rows_of_a_card_lead_the_newest_first_and_those_of_a_cpu_do_not(tmp_path):
    published = [*rows([100.0], **PUBLISHED), *rows([50.0], **PUBLISHED | OLD)]
    older = [*rows([90.0], suite="mine"), *rows([60.0], suite="mine", precision="fp16")]
    newer = [*rows([40.0], **NEW), *rows([30.0], precision="fp16", **NEW)]
    answer = answered(tmp_path, [*published, *older, *newer])
    assert lacking(answer.headline, "RTX 4090", "1.33") == []
    own = [(result.place, result.suite) for result in answer.results if result.own]
    assert own == [("RTX 4090", "resnet"), ("RTX 2080 Ti", "mine")]
    assert [result.own > 0 for result in answer.results] == [True, True, False]
    assert "RTX 4090" in answer.sections[0].results[0].charts[0].title
    lines = screen(answered(tmp_path, [*published, *newer]))
    assert any(line.split()[:1] == ["resnet18"] for line in lines)  # the table of models, of the own card
    assert any("GTX 1080 Ti / RTX 2080 Ti" in line for line in lines)  # beside it
    cpu = {"card": "AMD EPYC", "device": "cpu", "session": "s9"}
    given = [*published, *rows([40.0], **cpu), *rows([30.0], precision="bf16", **cpu)]
    assert "GTX 1080 Ti" in answered(tmp_path, given).headline
