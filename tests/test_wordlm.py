"""The wordlm suite, small: it trains every model in every precision, carries its state, and counts its FLOPs."""

import math
import random
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gpubench.suites.wordlm import training
from measured_rows import rows_of_run
from small_trials import run_trial, skip_bf16_lstm, small_trial
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from gpubench.errors import UserError
from gpubench.hardware.environment import Device, cpu_device
from gpubench.runner.cases import cases_of, recipes_of
from gpubench.runner.options import Options
from gpubench.suite import files
from gpubench.suite.precisions import LINEAR_ONLY, PRECISIONS
from gpubench.training import Stepper, precision

WORDLM = files.find("wordlm")
MODELS = WORDLM.suite.models
SMALL = {"emsize": "12", "nhid": "12", "bptt": "5", "valid_batch": "2", "epochs": "1"}
CPU = Device("cpu", "cpu", "Chip", 10**10, "", "", "cc", {"tf32": "a CPU has no TF32"})
GPU = Device("cuda:0", "cuda", "Card", 10**10, "8.6", "1", "aa", {})


def given_by_linux():
    """To whom this system gives huge pages."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.read_text() if setting.is_file() else ""


@pytest.fixture
def text(tmp_path):
    """A folder with a small corpus: 30 words, each of which tells much of the next."""
    folder = tmp_path / "text"
    folder.mkdir()
    dice = random.Random(1)
    for split, lines in {"train": 200, "valid": 20, "test": 20}.items():
        starts = [dice.randrange(30) for _ in range(lines)]
        words = [[f"w{(start + step) % 30}" for step in range(9)] for start in starts]
        (folder / f"{split}.txt").write_text("".join(" ".join(line) + "\n" for line in words))
    return folder


def trial_of(text, model="lstm", name="fp32", mode="full", batch=4, **settings):
    data = "corpus-1" if text else "synthetic"
    folder = str(text or "")
    return small_trial(WORDLM, model, name, {**SMALL, **settings}, mode=mode, batch=batch, data=data, data_dir=folder)


def run_small(text, *arguments, **options):
    return run_trial(WORDLM, trial_of(text, *arguments, **options))


# All but TF32, and fp16 autocast of an LSTM, for which torch has no kernel: the next test sees its row.
ON_A_CPU = [
    (m, p) for m in MODELS for p in PRECISIONS if p not in {"tf32", *LINEAR_ONLY} and (m, p) != ("lstm", "fp16")
]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        pytest.param(model, name, marks=() if model in {"lstm", "transformer"} or name == "bf16" else pytest.mark.e2e)
        for model, name in ON_A_CPU
    ],
)
def test_every_model_in_every_precision_of_a_cpu(text, model, name):
    skip_bf16_lstm(model, name)
    _, clock, watch = run_small(text, model, name, mode="quick")
    dtype = {"fp32": "float32", "bf16": "bfloat16"}.get(name, "float16")
    assert dtype in watch.check(name)
    assert precision.check_weights(name, clock.notes.weights)
    assert clock.watched_samples
    assert clock.summary()["samples"] >= 5 * 4
    assert not clock.notes.diverged


@pytest.mark.parametrize("name", sorted(LINEAR_ONLY))
def test_a_transformer_in_8_bits(text, name):
    sizes = {"emsize": "32", "nhid": "64"}
    _, clock, watch = run_small(text, "transformer", name, mode="quick", **sizes)
    assert clock.notes.low_products == 2 * 2 * 3
    assert watch.check(name, low_products=12)
    case = trial_of(text, "transformer", name, **sizes).case
    assert WORDLM.suite.refuse(case) == ""
    for other in (trial_of(text, "transformer", name).case, trial_of(text, "lstm", name, **sizes).case):
        assert "no linear layer is large enough" in WORDLM.suite.refuse(other)


def test_the_rows_of_an_lstm(cli, tmp_path, text):
    names = sorted({*PRECISIONS} - {*LINEAR_ONLY} - {*cpu_device().unsupported})
    options = ("--models", "lstm", "--precision", ",".join(names), "--quick", "--data", text, "--batch", 4)
    frame = rows_of_run(cli, tmp_path, "wordlm", *options, **SMALL).set_index("precision")
    for name, row in frame.iterrows():
        if row["status"] == "unsupported":
            assert name in {"fp16", "bf16"}
            assert "one step of this model fails" in row["reason"] or "bf16" in row["reason"]
            continue
        assert row["status"] == "ok"
        low, high = PRECISIONS[name].probe_errors
        assert low <= row["precision_error"] <= high
        assert "operands" in row["precision_proof"]
    assert {"fp32", "fp16-master", "fp16-pure"} <= set(frame.index[frame["status"] == "ok"])
    assert frame["data"].str.match(r"corpus-[0-9a-f]{8}").all()
    assert frame["perplexity"].isna().all()
    assert math.isnan(frame["flops_per_sample"]["fp32"])  # the suite counts for WikiText-2's vocabulary


@pytest.mark.parametrize(
    ("model", "device", "refused"),
    [("lstm", "cuda:0", True), ("rnn_tanh", "cuda:1", True), ("transformer", "cuda:0", False), ("lstm", "cpu", False)],
)
def test_an_rnn_in_bf16_is_refused_where_autocast_would_compute_it_in_fp16(text, model, device, refused):
    case = replace(trial_of(text, model, "bf16").case, device=device)
    assert ("in fp16 on CUDA" in WORDLM.suite.refuse(case)) is refused
    assert not WORDLM.suite.refuse(replace(case, precision="fp16"))


def test_a_full_run_learns_and_counts_predicted_tokens(text):
    quality, clock, _ = run_small(text, epochs="4", lr="10")
    summary = clock.summary()
    rows = 200 * 10 // 4
    assert summary["samples"] == 4 * (rows - 1) * 4
    assert summary["measured"]
    assert {lap.epoch for lap in summary["laps"] if lap.kind != "resident"} == {0, 1, 2, 3}
    assert 1 < quality["perplexity"] < 15  # chance is 31
    assert 1 < quality["test_perplexity"] < 15


def test_the_rate_falls_when_validation_does_not_improve_and_the_best_weights_are_tested(text, monkeypatch):
    made, rates, seen = [], [], []
    scripted = iter([5.0, 6.0, math.nan, 4.0, 4.0, 3.0])  # five epochs and the test

    class Spy(Stepper):
        def __init__(self, mode, model, optimizer, clock, **options):
            made.append((model, optimizer))
            super().__init__(mode, model, optimizer, clock, **options)

    def loss(model, mode, batches):
        list(batches)
        seen.append(model.decoder.weight.detach().clone())
        rates.append(made[0][1].param_groups[0]["lr"])
        return next(scripted)

    monkeypatch.setattr(training, "Stepper", Spy)
    monkeypatch.setattr(training, "mean_loss", loss)
    quality, _, _ = run_small(text, epochs="5")
    assert rates == [20.0, 20.0, 5.0, 1.25, 1.25, 0.3125]
    assert torch.equal(seen[5], seen[3])  # the first of the two epochs with a loss of 4
    assert not torch.equal(seen[5], seen[4])
    assert quality == {"perplexity": math.exp(4.0), "test_perplexity": math.exp(3.0)}


def test_gradients_are_clipped(text, monkeypatch):
    steps = []

    class Spy(Stepper):
        def step(self):
            before = [p.detach().clone() for p in self._parameters()]
            super().step()
            moved = [(new.detach() - old).norm() for new, old in zip(self._parameters(), before, strict=True)]
            steps.append(float(torch.stack(moved).norm()))

    monkeypatch.setattr(training, "Stepper", Spy)
    run_small(text, lr="3", clip="0.01")
    assert 0 < max(steps) <= 3 * 0.01 * 1.001


@pytest.mark.parametrize("model", [model for model in MODELS if model != "transformer"])
def test_the_state_runs_on_from_slice_to_slice(text, model):
    trial = trial_of(text, model)
    train_text, _, _, vocabulary = training.load_text(trial, torch.device("cpu"))
    torch.manual_seed(0)
    network = training.network(trial, vocabulary)
    mode = precision.mode_of("fp32", "cpu")
    short, long = (training.mean_loss(network, mode, training.Slices(train_text.columns, n)) for n in (3, 1000))
    assert short == pytest.approx(long, rel=1e-5)


def test_slices_and_a_padded_vocabulary(text):
    columns = training.in_columns(torch.arange(31), 3)
    assert columns[:3].tolist() == [[0, 10, 20], [1, 11, 21], [2, 12, 22]]
    slices = training.Slices(columns, 4)
    batches = list(slices)
    assert (len(slices), slices.tokens) == (3, 27)
    assert torch.cat([targets for _, targets in batches]).tolist() == columns[1:].flatten().tolist()
    inside = range(columns.data_ptr(), columns.data_ptr() + columns.nbytes)
    assert all(part.data_ptr() in inside for batch in batches for part in batch)
    assert training.load_text(trial_of(text), torch.device("cpu"))[3] == 31
    assert training.load_text(trial_of(text, vocab_multiple="8"), torch.device("cpu"))[3] == 32


def test_a_transformer_sees_nothing_of_what_follows_and_tied_weights_are_one_matrix(text):
    trial = trial_of(text, "transformer", dropout="0")
    network = training.network(trial, 31).eval()
    tokens = torch.randint(0, 31, (5, 2))
    other = tokens.clone()
    other[3:] = (other[3:] + 1) % 31
    scores, changed = (network(x, None)[0].view(5, 2, 31) for x in (tokens, other))
    assert torch.allclose(scores[:3], changed[:3])
    assert not torch.allclose(scores[3:], changed[3:])
    network = training.network(trial_of(text, tied="true"), 31)
    assert network.decoder.weight is network.embedding.weight
    with pytest.raises(UserError, match="needs nhid equal to emsize"):
        training.network(trial_of(text, tied="true", nhid="8"), 31)
    with pytest.raises(UserError, match="emsize=13: not a multiple of nhead=2"):
        training.network(trial_of(text, "transformer", emsize="13"), 31)


def test_synthetic_text_has_wikitext_2s_sizes_and_zipfs_law():
    (train_part, *others), words = training.synthetic_text(1), training.VOCABULARY
    assert [len(part) for part in (train_part, *others)] == [2_088_628, 217_646, 245_569]
    share = train_part.bincount(minlength=words) / len(train_part)
    harmonic = float((1 / torch.arange(1, words + 1)).sum())
    assert float(share[0]) == pytest.approx(1 / harmonic, rel=0.02)
    assert float(share[9]) == pytest.approx(0.1 / harmonic, rel=0.05)


# Small and broken text


def test_a_corpus_too_small_for_the_batch_is_a_row_that_says_so(cli, tmp_path, text):
    (text / "train.txt").write_text("a b c d e f g h i\n")
    options = ("--models", "lstm", "--precision", "fp32", "--quick", "--data", text)
    row = rows_of_run(cli, tmp_path, "wordlm", *options, code=4).iloc[0]
    assert row["status"] == "failed"
    assert "10 tokens, too few for 20 columns" in row["reason"]


PAGES = """
import re
from pathlib import Path
import torch
from gpubench import Suite
def train(trial, clock):
    large = torch.ones(2**25)
    found = re.search(r"AnonHugePages: +(\\d+)", Path("/proc/self/smaps_rollup").read_text())
    Path(__file__).with_suffix(".txt").write_text(found[1])
    for _ in clock.resident():
        pass
    return {}
SUITE = Suite(train=train, models=("m",), params={}, version=1)
"""


@pytest.mark.e2e
@pytest.mark.skipif("[madvise]" not in given_by_linux(), reason="Linux gives huge pages to all here, or to none")
@pytest.mark.parametrize("wish", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_large_tensors_of_a_cpu_lie_in_huge_pages(cli_process, tmp_path, wish):
    (tmp_path / "pages.py").write_text(PAGES)
    cli_process(
        "run", "--suite", "pages.py", "--quick", "--device", "cpu", "--precision", "fp32", "--set", f"huge_pages={wish}"
    )
    kilobytes = int((tmp_path / "pages.txt").read_text())
    assert (kilobytes > 2**16) == (wish == "true")


# FLOPs


@pytest.mark.parametrize(
    ("model", "cell"), [("lstm", nn.LSTMCell), ("gru", nn.GRUCell), ("rnn_tanh", nn.RNNCell), ("rnn_relu", nn.RNNCell)]
)
def test_torchs_counter_agrees_on_an_unrolled_cell(model, cell):
    emsize, nhid, rows, columns, words = 24, 16, 3, 4, 33_278
    embedding, decoder = nn.Embedding(words, emsize), nn.Linear(nhid, words)
    cells = [cell(emsize, nhid), cell(nhid, nhid)]
    tokens = torch.randint(0, words, (rows, columns))
    with FlopCounterMode(display=False) as counter:
        # A first state that wants a gradient, as the states after it do.
        states = [torch.zeros(columns, nhid, requires_grad=True) for _ in cells]
        states = [(h, torch.zeros_like(h)) if model == "lstm" else h for h in states]
        outputs = []
        for row in embedding(tokens):
            x = row
            for number, one in enumerate(cells):
                states[number] = one(x, states[number])
                x = states[number][0] if model == "lstm" else states[number]
            outputs.append(decoder(x))
        cross_entropy(torch.cat(outputs), tokens.flatten()).backward()
    params = WORDLM.resolve_params({"emsize": str(emsize), "nhid": str(nhid)})
    assert WORDLM.suite.flops(model, params) * rows * columns == counter.get_total_flops()


def test_torchs_counter_agrees_on_the_transformer():
    trial = trial_of(None, "transformer", emsize="24", nhid="16", bptt="6", dropout="0.1")
    network = training.network(trial, 33_278)
    tokens = torch.randint(0, 33_278, (6, 4))
    with FlopCounterMode(display=False) as counter:
        cross_entropy(network(tokens, None)[0], tokens.flatten()).backward()
    assert WORDLM.suite.flops("transformer", trial.case.params) * tokens.numel() == counter.get_total_flops()


# NVIDIA Apex


def cases_with_apex(device, wish):
    options = Options(suites=("wordlm",), models=("lstm",), precision=wish, settings={"engine": "apex"})
    return cases_of(recipes_of(options, [WORDLM]), options, [device])


def test_apex_is_refused_where_it_cannot_train(tmp_path, monkeypatch):
    (case,) = cases_with_apex(GPU, "fp16-master")
    assert "NVIDIA Apex is not installed" in case.refusal
    for part in ("", "optimizers", "amp", "fp16_utils", "multi_tensor_apply"):
        (tmp_path / "apex" / part).mkdir(parents=True, exist_ok=True)
        (tmp_path / "apex" / part / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    (case,) = cases_with_apex(GPU, "fp16-master")
    assert case.refusal == ""
    (case,) = cases_with_apex(CPU, "fp16-master")
    assert "CUDA tensors only" in case.refusal
    (case,) = cases_with_apex(GPU, "fp32")
    assert "use engine=torch for fp32" in case.refusal


class StandIn:
    """FP16_Optimizer as Apex 25.05 has it, from outside: the names, their order of use, and no more."""

    def __init__(self, optimizer, static_loss_scale=1.0, dynamic_loss_scale=False, verbose=True):
        assert not verbose
        # Apex begins at 2**16, where no gradient of this small text overflows.
        self.loss_scale = 2.0**32 if dynamic_loss_scale else static_loss_scale
        self.pairs = []
        for group in optimizer.param_groups:
            for index, half in enumerate(group["params"]):
                assert half.dtype is torch.float16
                group["params"][index] = half.detach().float().requires_grad_()
                self.pairs.append((half, group["params"][index]))
        self.inner, self.overflow, self.calls = optimizer, False, []
        StandIn.last = self

    def backward(self, loss):
        assert loss.dtype is torch.float32
        self.calls.append("backward")
        (loss * self.loss_scale).backward()
        grads = [half.grad.float() / self.loss_scale for half, _ in self.pairs]
        self.overflow = not all(grad.isfinite().all() for grad in grads)
        if self.overflow:
            self.loss_scale /= 2
        for (_, master), grad in zip(self.pairs, grads, strict=True):
            master.grad = grad

    def clip_master_grads(self, max_norm):
        self.calls.append("clip")
        if not self.overflow:
            nn.utils.clip_grad_norm_([master for _, master in self.pairs], max_norm)

    def step(self):
        self.calls.append("step")
        if not self.overflow:
            self.inner.step()
            for half, master in self.pairs:
                half.data.copy_(master.data)

    def zero_grad(self):
        self.calls.append("zero_grad")
        for half, master in self.pairs:
            half.grad = master.grad = None


@pytest.mark.parametrize(("loss_scale", "skips"), [("0", True), ("8", False)])
def test_apex_is_called_as_its_own_example_did(text, monkeypatch, loss_scale, skips):
    """With a stand-in: the real FP16_Optimizer takes CUDA tensors only."""
    for name in ("apex", "apex.fp16_utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["apex.fp16_utils"].FP16_Optimizer = StandIn
    quality, clock, watch = run_small(text, "lstm", "fp16-master", engine="apex", loss_scale=loss_scale, lr="10")
    calls = StandIn.last.calls
    assert calls[:4] == ["backward", "clip", "step", "zero_grad"]
    assert calls == calls[:4] * (len(calls) // 4)
    assert quality["perplexity"] < 100
    assert watch.check("fp16-master")
    assert "optimizer float32" in precision.check_weights("fp16-master", clock.notes.weights)
    notes = clock.notes
    assert (notes.skipped_steps > 0) == skips
    assert notes.loss_scale == (2.0**32 / 2**notes.skipped_steps if skips else 8)
    assert notes.nonfinite_losses == 0


@pytest.mark.realdata
def test_real_words_teach_something(cli, tmp_path, real_data):
    options = ("--models", "lstm", "--precision", "fp32", "--full", "--data", real_data("wikitext-2"))
    row = rows_of_run(cli, tmp_path, "wordlm", *options, epochs=1, train_tokens=28_000, valid_tokens=3500).iloc[0]
    assert row["data"] == "wikitext-2"
    assert row["flops_per_sample"] == 43_773_600
    assert row["perplexity"] < 6000  # chance is 33,278
    assert row["test_perplexity"] < 6000
