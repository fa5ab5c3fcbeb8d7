"""Published speeds: their sources, the model and its errors, and the ranking of `gpubench cards`."""

import csv
import json
import math
import re
import statistics
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpubench.studies import listed_peaks
from gpubench.studies.cards import REFERENCE, ranking
from gpubench.studies.cards.figures import (
    CLASS_OF,
    FigureGroup,
    data_sheets,
    published,
    read_figures,
    reason_against,
    short_name,
)
from gpubench.studies.cards.model import (
    EFFECTS,
    FAMILIES,
    Model,
    Spreads,
    centred,
    covariance,
    fitted_model,
    fitted_spreads,
    prediction_errors,
)

FIGURES = read_figures()
NAMES = sorted({group.card for group in published().groups})


def test_every_figure_names_its_file_and_commit():
    assert len(FIGURES) > 1400
    for figure in FIGURES:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", figure.source), figure
        assert re.fullmatch(r"[0-9a-f]{7,40}", figure.commit), figure
        assert figure.file, figure
        assert figure.figure > 0, figure
        assert 2016 < figure.year < 2027, figure
        assert figure.family in FAMILIES, figure
        assert figure.gpus > 1 or figure.precision in CLASS_OF, figure
    assert FIGURES[0].line == 2


def test_no_figure_is_there_twice():
    facts = [(*(getattr(figure, name) for name in vars(figure) if name != "line"),) for figure in FIGURES]
    assert len(set(facts)) == len(facts)


def test_figures_are_left_out_by_what_their_sources_say():
    reasons = {figure.line: reason for figure, reason in published().left_out}
    assert len(reasons) + len(published().used) == len(FIGURES)
    assert {figure.line for figure in FIGURES if figure.gpus > 1} <= reasons.keys()
    assert all(reasons[figure.line] for figure in FIGURES if figure.source == "pytorch/torchtune")
    good = next(figure for figure in FIGURES if figure.line not in reasons)
    assert reason_against(good, {}) == ""
    assert "several GPUs" in reason_against(replace(good, gpus=8), {})
    assert "doubtful" in reason_against(replace(good, note="doubtful: no such card"), {})
    curve = replace(good, source="siasosp23/artifacts", batch="16")
    largest = {(curve.card, curve.source, curve.workload, curve.precision): 64.0}
    assert "largest batch" in reason_against(curve, largest)
    assert reason_against(replace(curve, batch="64"), largest) == ""


def test_no_rule_depends_on_the_speed():
    """Once half precision had to be 5% faster, which took the only convolution figures of the B200 away."""
    used = {(figure.card, figure.workload, figure.precision) for figure in published().used}
    assert {("B200", "resnet50-train-224", "amp-fp16"), ("B200", "resnet50-train-224", "tf32")} <= used
    for figure in FIGURES:
        if figure.source != "siasosp23/artifacts":
            assert reason_against(figure, {}) == reason_against(replace(figure, figure=1e6), {})


def test_every_recipe_has_at_least_two_cards():
    """And what a recipe is does not depend on the card: fp32 and TF32 of one program are one class."""
    cards = {}
    for group in published().groups:
        cards.setdefault(group.recipe, set()).add(group.card)
    assert min(map(len, cards.values())) > 1
    assert {group.kind for group in published().groups} == {"half", "single", "strict"}


def test_every_card_has_a_data_sheet_which_agrees_with_the_listed_peaks():
    assert set(NAMES) <= set(data_sheets())
    assert all(row["source"] for row in _rows("data_sheets.csv"))
    full = {short_name(figure["card"]): figure["card"] for figure in _rows("public_speeds.csv")}
    for card in NAMES:
        name = full[card].removeprefix("NVIDIA ")
        listed = [peak for peak in listed_peaks.cards() if re.fullmatch(peak.match, name, re.IGNORECASE)]
        if len(listed) == 1:
            assert data_sheets()[card].gb_per_second == pytest.approx(listed[0].bytes_per_second / 1e9), card


def _rows(name: str) -> list[dict[str, str]]:
    path = Path(listed_peaks.__file__).parent / "cards" / name
    return list(csv.DictReader(path.read_text().splitlines()))


def test_the_spreads_are_those_of_the_model_and_its_sources(benchmark_script):
    spreads = fitted_spreads()
    assert set(spreads.effects) == set(EFFECTS)
    assert set(spreads.sources) == {group.source for group in published().groups}
    assert spreads.widening >= 1
    errors = benchmark_script("cards_model").errors_of(published().groups, spreads, "figure")
    assert prediction_errors()["figures"] == len(errors)  # made from the figures that are there


def test_left_out_figures_are_predicted_within_the_printed_error(benchmark_script):
    script, groups, spreads = benchmark_script("cards_model"), published().groups, fitted_spreads()
    scores = {what: script.judged(script.errors_of(groups, spreads, what)) for what in script.LEFT_OUT}
    assert scores["figure"].median < 0.08
    assert scores["source"].median < 0.13
    assert scores["card"].median < 0.16
    assert all(0.85 < score.held < 0.95 for score in scores.values())
    # With spreads that were fitted without the card; benchmarks/cards_model.py takes minutes.
    assert prediction_errors()["median_error"] < 0.12
    assert 0.85 < prediction_errors()["in_interval"] < 0.95
    assert 0.85 < prediction_errors()["in_interval_source"] < 0.95


SOME = [
    group
    for group in published().groups
    if group.source in {"u39kun/deep-learning-benchmark", "mli/transformers-benchmarks"}
]


@pytest.mark.parametrize("block", [[3], [0, 1, 2, 7]])
def test_the_closed_form_of_leaving_out_equals_the_prediction_of_the_rest(block, benchmark_script):
    spreads = replace(fitted_spreads(), widening=1.0)
    errors, deviations = benchmark_script("cards_model").left_out(SOME, spreads, [block])
    matrix, values = covariance(SOME, spreads), centred(SOME)
    rest = [at for at in range(len(SOME)) if at not in block]
    gain = matrix[np.ix_(block, rest)] @ np.linalg.inv(matrix[np.ix_(rest, rest)])
    spread = matrix[np.ix_(block, block)] - gain @ matrix[np.ix_(rest, block)]
    np.testing.assert_allclose(errors[block], values[block] - gain @ values[rest], rtol=1e-6)
    np.testing.assert_allclose(deviations[block], np.sqrt(np.diag(spread)), rtol=1e-6)
    assert np.isnan(errors[rest]).all()


def made(card: str, source: str, workload: str, speed: float) -> FigureGroup:
    """A group with one figure."""
    figure = replace(FIGURES[0], card=card, source=source, workload=workload, figure=speed, unit="images/s")
    return FigureGroup(card, source, "half", workload, "made", "", FAMILIES[int(workload[-1]) % 2], (figure,))


def test_a_card_that_is_twice_as_fast_everywhere_is_twice_as_fast():
    """And the more sources say so, the surer it is; how fast is a matter of the card, not of the unit."""
    spreads = replace(fitted_spreads(), widening=1.0)
    few, many = (
        Model(
            [
                made(card, f"source{source}", f"model{model}", factor * (1 + model) * 10**source)
                for source in range(sources)
                for model in range(4)
                for card, factor in (("RTX 3090", 1.0), ("RTX 4090", 2.0))
            ],
            spreads,
        ).ratio("RTX 4090", "RTX 3090", "half")
        for sources in (1, 12)
    )
    assert many.value == pytest.approx(2, rel=0.1)  # their data sheets say 1.08, and speak too
    assert 1.08 < few.value < many.value
    assert few.high / few.low > 1.1 * many.high / many.low


def test_nine_of_ten_intervals_contain_the_simulated_value():
    """Cards, sources and recipes drawn from the model itself: nine of ten intervals hold what was drawn."""
    spreads = Spreads(dict.fromkeys(EFFECTS, 0.1), {}, 0.1)
    cards = ["RTX 3090", "RTX 4090", "GTX 1080 Ti", "V100-SXM2-16GB", "H200"]
    groups = [made(card, f"source{s}", f"model{s}{m}", 1.0) for card in cards for s in range(3) for m in range(3)]
    probes = [FigureGroup(card, "", "half", "new", "", "", "matmul", ()) for card in cards]
    matrix = covariance([*groups, *probes], spreads)
    root = np.linalg.cholesky(matrix + 1e-9 * np.eye(len(matrix)))
    rng = np.random.default_rng(1)
    held = []
    extra = [name for name in EFFECTS if name in {"card_source", "card_source_class", "card_workload"}]
    noise = (len(extra) + 2) * 0.1**2  # architecture_recipe and software are new for a new workload too
    for _ in range(60):
        drawn = root @ rng.standard_normal(len(matrix))
        seen = [
            replace(group, figures=(replace(group.figures[0], figure=math.exp(value)),))
            for group, value in zip(groups, drawn, strict=False)
        ]
        model = Model(seen, spreads)
        means, spread = model.speeds(cards, "half", ["matmul"])
        for at in range(1, len(cards)):
            truth = drawn[len(groups) + at] - drawn[len(groups)]
            deviation = math.sqrt(spread[0, 0] + spread[at, at] - 2 * spread[0, at] + 2 * (noise + 0.1**2))
            held.append(float(abs(means[at] - means[0] - truth) < 1.645 * deviation))
    assert statistics.mean(held) == pytest.approx(0.9, abs=0.06)


def test_the_2080_ti_over_the_1080_ti_agrees_with_its_published_ratio():
    """1.26 to 1.58 by model and precision (results/2019-rtx-2080-ti-gtx-1080-ti.csv, which the model has not seen)."""
    ratio = fitted_model().ratio("RTX 2080 Ti", "GTX 1080 Ti", "single")
    assert 1.26 <= ratio.value <= 1.58
    assert ratio.low <= 1.30 <= ratio.high  # the mean in fp32
    alone = fitted_model().one_workload("RTX 2080 Ti", "GTX 1080 Ti", "half")
    assert alone.low <= 1.58 <= alone.high
    assert alone.low < fitted_model().ratio("RTX 2080 Ti", "GTX 1080 Ti", "half").low


def test_mlperf_agrees_although_the_model_has_not_seen_it():
    """Ratios of cards in its results with equal numbers of GPUs; the B200 is faster there (docs/research/cards.md)."""
    known = set(NAMES)
    speeds: dict[tuple[str, int], dict[str, list[float]]] = {}
    for figure in FIGURES:
        if figure.source.startswith("mlcommons/") and figure.card in known:
            speeds.setdefault((figure.workload, figure.gpus), {}).setdefault(figure.card, []).append(figure.speed)
    inside, errors = [], []
    for by_card in speeds.values():
        for one, two in combinations(sorted(by_card), 2):
            measured = statistics.median(by_card[one]) / statistics.median(by_card[two])
            ratio = fitted_model().one_workload(one, two, "half")
            inside.append(ratio.low < measured < ratio.high)
            errors.append(abs(math.log(measured / ratio.value)))
    assert len(inside) == 16
    assert sum(inside) >= 13
    assert statistics.median(errors) < 0.25


def test_cards_from_2017_to_2025_are_ranked_and_neighbours_share_a_tier():
    ranked = ranking.rank(fitted_model())
    assert sum(2017 <= data_sheets()[line.card].year <= 2025 for line in ranked.lines) >= 45
    assert len(ranked.lines) == len({line.card for line in ranked.lines}) >= 60
    tiers = [line.tier for line in ranked.lines if line.tier]
    assert tiers == sorted(tiers)
    assert 1 < max(tiers) < len(tiers) / 3
    firsts = [next(line for line in ranked.lines if line.tier == tier) for tier in sorted(set(tiers))]
    for above, below in pairwise(firsts):
        assert fitted_model().ratio(above.card, below.card, "half").differs
    (reference,) = [line for line in ranked.lines if line.card == REFERENCE]
    assert {(ratio.value, ratio.low, ratio.high) for ratio in reference.ratios.values()} == {(1.0, 1.0, 1.0)}


def test_a_card_of_one_source_has_a_wider_interval():
    wide = {line.card: line.ratios["half"] for line in ranking.rank(fitted_model()).lines if "half" in line.ratios}
    assert wide["RTX 4080"].high / wide["RTX 4080"].low > wide["RTX 3090"].high / wide["RTX 3090"].low


def test_the_table_fits_a_screen_and_has_the_prediction_error(cli):
    done = cli("cards")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "Of 65 cards B200, H200, GH200 480GB or H100 80GB HBM3 trains fastest in half"
    start, end = lines.index("times as fast as A100-SXM4-80GB"), lines.index("", 4)
    assert end - start <= 30
    for card in ("B200", "H100 80GB HBM3", "RTX 5090", "RTX 4090", "RTX 3090", "RTX 2080 Ti", "GTX 1080 Ti"):
        assert any(f" {card}  " in line for line in lines), card
    notes = " ".join(lines[end:])
    assert f"prediction error: {prediction_errors()['median_error']:.0%}" in notes
    assert "times as fast as RTX 3090" in cli("cards", "--relative-to", "3090").stdout


def test_one_card_shows_each_figure_with_its_line_and_file(cli):
    out = " ".join(cli("cards", "B200").stdout.split())
    for figure in published().used:
        if figure.card == "B200":
            assert figure.file in out
            assert f" {figure.line} " in out
    assert "several GPUs at once" in out


def test_sources_are_listed(cli):
    out = cli("cards", "--sources").stdout
    for figure in FIGURES:
        assert re.search(rf"{re.escape(figure.source)} +{figure.commit}", out)
    assert "no other card has the same recipe" in out
    out = cli("cards", "--source", "transformers-benchmarks").stdout
    assert re.search(r"bert-layer-fwdbwd +A100-SXM4-80GB +136", out)


def test_other_formats_have_every_card_with_its_interval(cli):
    whole = json.loads(cli("cards", "--format", "json").stdout)
    (table,) = whole["sections"][0]["tables"]
    names = [column["name"] for column in table["columns"]]
    assert len(table["lines"]) == len(ranking.rank(fitted_model()).lines)
    for line in table["lines"]:
        half = dict(zip(names, line, strict=True))["half"]
        assert half is None or half["low"] <= half["value"] <= half["high"]
    rows = list(csv.DictReader(cli("cards", "--format", "csv").stdout.splitlines()))
    assert {"card", "half", "half low", "half high", "memory", "watts"} <= set(rows[0])
    assert "| B200 |" in cli("cards", "--format", "markdown").stdout
    pairs = json.loads(cli("cards", "4090", "3090", "--format", "json").stdout)["sections"][0]["tables"][1]
    assert [column["name"] for column in pairs["columns"]][-2:] == ["unit", "files"]


def test_the_chart_is_a_picture_of_the_usual_size(cli, tmp_path):
    done = cli("cards", "--charts", "out", "--precision", "single")
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "out" / "cards-single.png") as picture:
        assert picture.size == (1200, 675)
    assert cli("cards", "4090", "3090", "--charts", "out").returncode == 2


def test_one_kind_of_model_can_be_asked_for(cli):
    done = cli("cards", "RTX 4090", "RTX 3090", "--family", "matmul", "--all")
    assert "bert-large" in done.stdout
    assert "resnet50" not in done.stdout


def test_the_fit_goes_uphill(benchmark_script):
    """Its gradient is the one that its density has."""
    fitted = benchmark_script("cards_model").fit(SOME)
    base = _log_density(fitted)
    for name in ("card_source", "architecture_class"):
        for factor in (0.8, 1.25):
            other = replace(fitted, effects={**fitted.effects, name: factor * fitted.effects[name]})
            assert _log_density(other) < base + 1e-3


def _log_density(spreads: Spreads) -> float:
    matrix, values = covariance(SOME, spreads), centred(SOME)
    prior = sum((math.log(effect / 0.1) / 2.0) ** 2 for effect in spreads.effects.values())
    prior += sum((math.log(source / 0.1) / 0.7) ** 2 for source in spreads.sources.values())
    return -0.5 * float(values @ np.linalg.solve(matrix, values) + np.linalg.slogdet(matrix)[1] + prior)
