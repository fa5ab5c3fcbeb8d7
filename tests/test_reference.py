"""The suite `reference`, and the comparison of its rate with published figures."""

import pandas as pd
import pytest
import torch
from answers import answered
from facts import lacking
from gpubench.suites.reference import SEQUENCE, VOCABULARY, training
from measured_rows import rows_of_run
from rows import rows
from small_trials import MIXED

from gpubench.cli.run import results_of
from gpubench.rows import write
from gpubench.studies.cards import ranked_rates

CASE = {
    "suite": "made", "studies": "placing", "model": "resnet50", "precision": "fp16", "memory_format": "channels_last",
    "params": "epochs=1 image_size=224", "data": "synthetic", "mode": "sampled",
}  # fmt: skip


def test_a_suite_of_rates_is_compared_by_its_rates(tmp_path):
    # Of the seconds 30 and 100 are the start, in which cuDNN tries its algorithms.
    made = {"suite": "gpt", "samples_per_second": 400.0, "run_samples": 1_200_000, "measured": "projected"}
    fp32 = rows([3030.0, 3100.0], **CASE | made | {"precision": "fp32"})
    fp16 = rows([1530.0, 1600.0], **CASE | made | {"samples_per_second": 800.0})
    (result,) = answered(tmp_path, [*fp32, *fp16]).results
    (part,), (chart, _) = result.parts, result.charts
    assert (result.unit, chart.subtitle[:17], result.value) == ("samples/s", "Training tokens/s", pytest.approx(2.0))
    assert (part.subject, part.baseline) == (pytest.approx(800.0), pytest.approx(400.0))


def sentences(rate, **changes):
    trials = rows([100.0] * 2, **{**CASE, "samples_per_second": rate, **changes})
    return ranked_rates.reference_sentences(pd.DataFrame(trials))


@pytest.mark.e2e
def test_both_models_train_and_prove_their_precision(cli, tmp_path):
    options = ("--quick", "--batch", 2, "--precision", MIXED)
    frame = rows_of_run(cli, tmp_path, "reference", *options, image_size=32, layers=1)
    assert set(frame["model"]) == {"resnet50", "bert-base"}
    assert set(frame["studies"]) == {"placing"}
    assert frame["flops_per_sample"].min() > 1e7


def test_the_encoder_and_the_anchor_are_the_published_ones():
    """BERT-base has 109 million; without its second embedding, pooler and a third of a head's own."""
    encoder = training.Encoder(12)
    assert sum(weight.numel() for weight in encoder.parameters()) == pytest.approx(109e6, rel=0.02)
    encoder = training.Encoder(1).to(torch.bfloat16)
    assert encoder(torch.randint(0, VOCABULARY, (2, SEQUENCE))).dtype is torch.bfloat16
    base = ranked_rates.anchor()
    assert (base.card, base.figure, base.unit) == ("RTX 3090", 1218, "images/s")


def test_a_card_is_compared_with_its_reference_if_it_has_one():
    (usual,) = sentences(1900.0, card="NVIDIA GeForce RTX 4090")
    assert lacking(usual, "RTX 4090", "batch of 64", "resnet50", "1,900 images/s in fp16", 1.56, "90%") == []
    assert "Within the range that published figures predict" in usual
    assert "timm" in usual
    assert "Below the range" in sentences(600.0, card="NVIDIA GeForce RTX 4090")[0]
    assert "Above the range" in sentences(5000.0, card="NVIDIA GeForce RTX 4090")[0]
    (text,) = sentences(2436.0, card="NVIDIA GeForce RTX 6090")
    assert lacking(text, "RTX 6090", "2.00", "RTX 3090", "not in our data") == []
    for card in ("AMD Radeon RX 7900 XTX", "NVIDIA GeForce GTX 1080 Ti"):
        (text,) = sentences(1000.0, card=card, memory_format="contiguous", params="image_size=224 memory_format=auto")
        assert lacking(text, *card.split()[-2:], "0.82", "RTX 3090") == []
    (text,) = sentences(4.0, card="AMD EPYC", device="cpu", precision="bf16")
    assert lacking(text, "AMD EPYC", "CPU") == []
    assert sentences(1900.0, card="NVIDIA GeForce RTX 4090", studies="") == []
    assert ranked_rates.reference_sentences(pd.DataFrame(columns=["studies", "card", "device"])) == []


@pytest.mark.parametrize(("changes", "required"), [
    ({"model": "bert-base"}, "resnet50"),
    ({"precision": "fp32"}, "mixed precision"),
    ({"memory_format": "contiguous"}, "memory_format=auto"),
    ({"params": "image_size=64"}, "224 pixels"),
    ({"status": "failed"}, "ended well"),
    ({"mode": "quick"}, "sampled or full"),
    ({"marks": "throttled"}, "mark"),
])  # fmt: skip
def test_another_recipe_is_unranked_with_what_it_lacks(changes, required):
    (text,) = sentences(1900.0, card="NVIDIA GeForce RTX 4090", **changes)
    assert lacking(text, "RTX 4090", "Not ranked", required) == []


def test_a_run_ends_with_the_comparison(tmp_path):
    made = rows([100.0] * 2, **{**CASE, "samples_per_second": 1900.0, "card": "NVIDIA GeForce RTX 4090"})
    write.append(tmp_path / "a.csv", made)
    assert "Within the range" in " ".join(results_of(tmp_path / "a.csv", ["s1"])[0])
