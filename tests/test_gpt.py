"""The suite gpt: its sizes, its learning rate, its batches, and that it learns."""

from types import SimpleNamespace

import pytest
import torch
from gpubench.suites import gpt
from gpubench.suites.gpt import training
from measured_rows import rows_of_run

SMALL = {
    "context": 32,
    "layers": 1,
    "heads": 2,
    "width": 32,
    "tokens": 512,
    "valid_tokens": 128,
    "epochs": 4,
    "lr": 0.003,
}


def trial(**changes):
    params = {"context": 32, "tokens": 1024, "valid_tokens": 128, "optimizer": "adamw", "lr": 1e-3, "muon_lr": 0.02}
    case = SimpleNamespace(device="cpu", processes=2)
    return SimpleNamespace(params=SimpleNamespace(**params | changes), case=case, batch_size=4, seed=1, rank=0)


def test_the_sizes_are_those_of_their_names_and_the_flops_torchs():
    params = {name: param.default for name, param in gpt.SUITE.params.items()}
    for model, millions in (("gpt2-6m", 6.6), ("gpt2-124m", 124), ("gpt2-1.5b", 1557)):
        sizes = params | gpt.SUITE.presets["model"][model]
        with torch.device("meta"):
            network = training.Gpt(*(sizes[name] for name in ("layers", "heads", "width", "vocabulary", "context")))
        assert sum(weight.numel() for weight in network.parameters()) == pytest.approx(millions * 1e6, rel=0.01)
    # But for one product of attention that is computed again in the backward pass: model FLOPs leave it out.
    from torch.utils.flop_counter import FlopCounterMode

    sizes = {"layers": 2, "width": 64, "vocabulary": 256, "context": 32}
    network = training.Gpt(2, 2, 64, 256, 32)
    tokens = torch.zeros(3, 32, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        network(tokens, tokens).backward()
    again = 2 * 2 * 64 * 32
    assert gpt.flops("", sizes) == counter.get_total_flops() / tokens.numel() - again


def test_the_rate_rises_and_falls_to_a_tenth():
    rates = [training.rate_at(step, 100, 10) for step in range(101)]
    assert rates[0] == pytest.approx(1 / 11)
    assert rates[10] == max(rates) == 1
    assert rates[100] == pytest.approx(0.1)


def test_targets_are_the_tokens_that_follow_and_processes_get_others():
    text = torch.arange(200, dtype=torch.uint8)
    one, other = (training.RandomSequences(text, trial(), torch.device("cpu")) for _ in range(2))
    other.dice.manual_seed(2)
    (tokens, targets), (elsewhere, _) = next(iter(one)), next(iter(other))
    assert torch.equal(tokens + 1, targets)
    assert not torch.equal(tokens, elsewhere)
    assert len(one) == 1024 // (4 * 32 * 2)
    in_order = training.sequences_in_order(text, trial(), torch.device("cpu"))
    assert sum(map(training.tokens_of, in_order)) == 128
    assert torch.equal(torch.cat([tokens for tokens, _ in in_order]).flatten(), torch.arange(128))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon came with torch 2.9")
def test_muon_takes_the_matrices_of_the_layers_only():
    network = training.Gpt(2, 2, 32, 256, 32)
    muon, adamw = training.optimizers_of(trial(optimizer="muon"), network)
    taken = {id(weight) for group in muon.param_groups for weight in group["params"]}
    rest = {id(weight) for group in adamw.param_groups for weight in group["params"]}
    assert taken == {id(weight) for weight in network.layers.parameters() if weight.ndim == 2}
    assert taken | rest == {id(weight) for weight in network.parameters()}
    assert not taken & rest


@pytest.mark.parametrize("names", ["both", "float8,int8-mixed"])
def test_it_learns_and_proves_its_precision(cli, tmp_path, names):
    data = tmp_path / "wikitext-2"
    data.mkdir()
    for split in ("train", "valid", "test"):
        (data / f"{split}.txt").write_text("one two three four five\n" * 50)
    options = ("--models", "gpt2-6m", "--precision", names, "--full", "--batch", 2, "--data", tmp_path)
    frame = rows_of_run(cli, tmp_path, "gpt", *options, **SMALL)
    assert set(frame["precision"]) == ({"fp32", "bf16"} if names == "both" else set(names.split(",")))
    if names != "both":
        assert (frame["low_flops_share"] > 0.5).all()
        assert frame["reason"].str.contains("a CPU's rate in .* means nothing").all()
    assert frame["loss"].max() < 4.5  # log(256) is 5.5
    assert set(frame["samples"]) == {4 * 512}
