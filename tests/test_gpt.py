"""The suite gpt: its sizes, its learning rate, its batches, and that it learns."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from brief import brief
from facts import lacking
from gpubench.suites import gpt
from gpubench.suites.gpt import training
from measured_rows import rows_of_run
from rows import row
from small_trials import run_trial, small_trial
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.suite import files
from gpubench.suite.precisions import PRECISIONS
from gpubench.training import sequences
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.timer import Peers

SMALL = {"context": 32, "layers": 1, "heads": 2, "width": 32, "tokens": 512, "valid_tokens": 128, "epochs": 4}


def trial(**changes):
    params = {"context": 32, "tokens": 1024, "valid_tokens": 128, "optimizer": "adamw", "lr": 1e-3, "muon_lr": 0.02}
    case = SimpleNamespace(device="cpu", precision="fp32", processes=2)
    return SimpleNamespace(params=SimpleNamespace(**params | changes), case=case, batch_size=4, seed=1, rank=0)


def test_the_sizes_are_those_of_their_names_and_the_flops_torchs():
    params = {name: param.default for name, param in gpt.SUITE.params.items()}
    for model, millions in (("gpt2-6m", 6.6), ("gpt2-124m", 124), ("gpt2-1.5b", 1557)):
        sizes = params | gpt.SUITE.presets["model"][model]
        with torch.device("meta"):
            network = training.Gpt(*(sizes[name] for name in ("layers", "heads", "width", "vocabulary", "context")))
        assert sum(weight.numel() for weight in network.parameters()) == pytest.approx(millions * 1e6, rel=0.01)
    from torch.utils.flop_counter import FlopCounterMode

    sizes = {"layers": 2, "width": 64, "vocabulary": 256, "context": 32}
    network = training.Gpt(2, 2, 64, 256, 32)
    tokens = torch.zeros(3, 32, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network(tokens, tokens).backward()
    assert gpt.flops("", sizes) == counter.get_total_flops() / tokens.numel()


def test_the_rate_rises_and_falls_to_a_tenth():
    rates = [training.rate_at(step, 100, 10) for step in range(101)]
    assert rates[0] == pytest.approx(1 / 11)
    assert rates[10] == max(rates) == 1
    assert rates[100] == pytest.approx(0.1)
    assert [gpt.SUITE.reaches(loss, 2.5, rounding=1e-6) for loss in (2.4, 2.500001, 2.6)] == [True, True, False]


def test_targets_are_the_tokens_that_follow_and_processes_get_others():
    text = torch.arange(200, dtype=torch.uint8)
    one, other = (sequences.RandomSequences(text, trial(), torch.device("cpu")) for _ in range(2))
    other.dice.manual_seed(2)
    (tokens, targets), (elsewhere, _) = next(iter(one)), next(iter(other))
    assert torch.equal(tokens + 1, targets)
    assert not torch.equal(tokens, elsewhere)
    assert len(one) == 1024 // (4 * 32 * 2)
    in_order = sequences.sequences_in_order(text, trial(), torch.device("cpu"))
    assert sum(map(sequences.tokens_of, in_order)) == 128
    assert torch.equal(torch.cat([tokens for tokens, _ in in_order]).flatten(), torch.arange(128))
    with pytest.raises(UserError, match="an epoch has 255 tokens, a step 256; give a smaller --batch"):
        sequences.steps_of(trial(tokens=255))


def test_a_sample_of_validation_counts_the_tokens_of_all_processes(monkeypatch):
    suite, settings = files.find("gpt"), {name: str(value) for name, value in SMALL.items()}
    alone = small_trial(suite, "gpt2-6m", "fp32", settings, batch=1, mode="quick")
    monkeypatch.setattr(sequences, "distributed", lambda model, trial: model)
    monkeypatch.setattr(sequences, "weighted_mean", lambda values, *_: values)
    clock = Clock(brief("quick"), peers=Peers(lambda numbers: [numbers, numbers], ("rank 0", "rank 1")))
    run_trial(suite, replace(alone, case=replace(alone.case, processes=2)), clock)
    assert [(phase.cut, phase.total_samples) for phase in clock._run.phases[1::2]] == [(True, 2 * 128)]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon came with torch 2.9")
def test_muon_takes_the_matrices_of_the_layers_only():
    network = training.Gpt(2, 2, 32, 256, 32)
    muon, adamw = training.optimizers_of(trial(optimizer="muon"), network)
    taken = {id(weight) for group in muon.param_groups for weight in group["params"]}
    rest = {id(weight) for group in adamw.param_groups for weight in group["params"]}
    assert taken == {id(weight) for weight in network.layers.parameters() if weight.ndim == 2}
    assert rest == {id(weight) for weight in network.parameters()} - taken
    cases = [SimpleNamespace(params={"optimizer": "muon"}, precision=name) for name in PRECISIONS]
    assert [case.precision for case in cases if not gpt.refuse(case)] == ["bf16", "bf16-pure", "float8", "int8-mixed"]


def run(cli, folder, names, code=0, **settings):
    data = folder / "wikitext-2"
    data.mkdir()
    for split in ("train", "valid", "test"):
        (data / f"{split}.txt").write_text("one two three four five\n" * 50)
    options = ("--models", "gpt2-6m", "--precision", names, "--full", "--batch", 2, "--data", folder)
    return rows_of_run(cli, folder, "gpt", *options, code=code, lr=0.003, **SMALL | settings)


@pytest.mark.parametrize("names", ["both", "float8,int8-mixed"])
def test_it_learns_and_proves_its_precision(cli, tmp_path, names):
    with sdpa_kernel(SDPBackend.MATH):  # not each release counts the FLOPs of fused attention on a CPU
        frame = run(cli, tmp_path, names)
    assert set(frame["precision"]) == ({"fp32", "bf16"} if names == "both" else set(names.split(",")))
    if names != "both":
        assert (frame["low_flops_share"] > 0.5).all()
        assert frame["reason"].str.contains("a CPU's rate in .* means nothing").all()
    assert frame["loss"].max() < 4.5  # log(256) is 5.5
    assert set(frame["samples"]) == {4 * 512}


@pytest.mark.parametrize(("goal", "status", "epochs"), [(5.3, "ok", range(1, 4)), (0.1, "goal_missed", [4])])
def test_a_run_ends_with_the_epoch_that_reaches_the_loss(cli, tmp_path, goal, status, epochs):
    row = run(cli, tmp_path, "fp32", code=0 if status == "ok" else 4, goal=goal).iloc[0]
    assert (row["status"], row["success_rate"], row["measured"]) == (status, float(status == "ok"), "measured")
    assert row["epochs"] in epochs
    assert row["samples"] == row["epochs"] * 512
    assert (row["loss"] <= goal) == (status == "ok")
    suite, settings = files.find("gpt"), {name: str(value) for name, value in (SMALL | {"goal": 100}).items()}
    _, clock, _ = run_trial(suite, small_trial(suite, "gpt2-6m", "fp32", settings, batch=2))
    assert clock.summary()["epochs"] == 4, "on made-up text there is no goal"


def test_what_compare_shows_of_tokens(cli, tmp_path):
    both = {"suite": "gpt", "model": "gpt2-6m", "data": "wikitext-2", "samples_per_second": 1e3}
    records.append(tmp_path / "a.csv", [row(loss=2.0, **both), row(loss=2.1, precision="bf16", **both)])
    (tmp_path / "prices.toml").write_text('["2080 Ti"]\nhourly = 3.6\n')

    def table(*options):
        return cli("compare", "a.csv", "--baseline", "fp32", "--all", *options).stdout

    losses = table("--metric", "loss")
    assert lacking(losses, "bf16 is 0.95 times as low as fp32", "tokens/s") == []
    assert [line.count("loss") for line in losses.splitlines() if "tokens/s" in line] == [1], "one column"
    assert "samples/s" not in table() + table("--metric=rate", "--charts=.") + next(tmp_path.glob("*.svg")).read_text()
    assert '"samples/s"' in table("--format", "json")
    cost = table("--metric", "cost-per-million", "--price", "prices.toml")
    assert ("samples" in cost, lacking(cost, "dollars/million tokens", "1.00")) == (False, [])
