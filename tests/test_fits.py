"""Whether a step fits a card: the verdicts, computed against real storages, and the command."""

from dataclasses import replace

import pytest
import torch
from inside import run_inside

from gpubench.cli.fits import fitting_case
from gpubench.studies.fit import GIB, StepMemory, lines_of, most_tokens, verdict
from gpubench.suite import files
from gpubench.suite.trial import Trial
from gpubench.training.precision import mode_of
from gpubench.worker.step_memory import LiveBytes, step_memory

LLM = "needs the extra llm: pip install -e '.[llm]'"


def step(tokens, gib):
    return StepMemory(tokens, int(gib * GIB), 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("peak", "words"), [(20.4, "fits"), (20.5, "may fit"), (23.9, "may fit"), (24.1, "does not fit")]
)
def test_it_fits_with_a_margin_and_not_above_the_memory(peak, words):
    assert verdict(peak * GIB, 24 * GIB) == words


def test_the_most_tokens_are_between_the_last_that_fits_and_the_first_that_does_not():
    steps = [step(2048, 10), step(512, 8), step(8192, 34)]
    assert most_tokens(steps, (1.1 * 16 + 1.5) * GIB) == pytest.approx(2048 + 6144 / 4)
    assert most_tokens(steps, (1.1 * 9 + 1.5) * GIB) == pytest.approx(512 + 1536 / 2)
    assert most_tokens(steps, 8 * GIB) == 0
    assert most_tokens(steps, 80 * GIB) == 8192
    (line, larger) = lines_of(steps, {"a": 80.0 * GIB, "b": 12.0 * GIB, "c": 80.0 * GIB})
    assert (line.gib, line.cards, larger.cards) == (12, "b", "a and c")
    assert (line.verdict, larger.verdict) == ("may fit", "fits")


def test_storages_count_once_and_while_they_are_alive():
    with LiveBytes() as memory:
        whole = torch.zeros(1000, dtype=torch.uint8)
        view = whole[:10]
        twice = whole * 2
        assert memory.now == 2000
        del whole, twice
        assert memory.now == 1000
        del view
    assert (memory.now, memory.peak) == (0, 2000)


def real_peak(trial):
    """The same training on tensors with data."""
    blueprint = files.find(trial.case.suite).suite.blueprint
    with LiveBytes() as memory:
        plan = blueprint(trial)
        optimizers = plan.optimizers()
        shape = (trial.batch_size, trial.params.context)
        for _ in range(2):
            memory.peak = memory.now
            with mode_of(trial.case.precision, "cpu").autocast():
                loss = plan.network(*(torch.zeros(shape, dtype=torch.int64) for _ in plan.inputs))
            loss.backward()
            del loss
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    return memory.peak


GPT = ("gpt2-6m", {"layers": "2"})
FULL = ("llama-6m", {"method": "full"})
LORA = ("llama-6m", {"method": "lora", "checkpointing": "false"})


@pytest.mark.parametrize(
    ("model", "settings", "precision"),
    [
        (*GPT, "fp32"),
        (*LORA, "bf16"),
        *(
            pytest.param(*case, marks=pytest.mark.e2e)
            for case in ((*GPT, "bf16"), (*LORA, "fp32"), (*FULL, "fp32"), (*FULL, "bf16"))
        ),
    ],
)
def test_the_computed_peak_is_that_of_real_tensors(monkeypatch, model, settings, precision):
    if model.startswith("llama"):
        sizes = pytest.importorskip("gpubench.suites.finetune.training", reason=LLM).SIZES
        monkeypatch.setitem(sizes, model, replace(sizes[model], layers=2))
    trial = Trial(fitting_case(model, {"context": "64", **settings}, precision, 2, ""), index=0, seed=0)
    (computed, *larger) = step_memory(trial, [GIB / 8])
    assert computed["peak"] == pytest.approx(real_peak(trial), rel=0.05)
    assert computed["tokens"] == 128
    assert computed["peak"] == sum(computed[part] for part in ("weights", "gradients", "optimizer", "activations"))
    assert [point["tokens"] for point in larger] == [128 * 4 ** (number + 1) for number in range(len(larger))]
    assert larger[-1]["peak"] > GIB / 8


def test_shorter_sequences_are_computed_until_one_is_below_the_limit():
    trial = Trial(fitting_case("gpt2-6m", {"context": "1024", "layers": "1"}, "fp32", 4, ""), index=0, seed=0)
    points = step_memory(trial, [0.0, 40e6, 2e8])
    assert [point["tokens"] for point in points[:2]] == [4096, 16384]
    few = step_memory(trial, [20e6])
    assert [point["tokens"] for point in few][:3] == [4096, 1024, 256]


@pytest.fixture
def fits(cli, monkeypatch):
    monkeypatch.setattr("gpubench.runner.process.run_child", run_inside)
    return lambda *words: cli("fits", *words)


def test_the_command_judges_a_card_and_a_size(fits):
    done = fits("gpt2-6m", "--sequence", 16_384, "--set", "layers=1", "--card", "rtx 4090")
    text = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert "which fits on RTX 4090 (24 GiB)" in text
    assert max(map(len, done.stdout.splitlines())) <= 79
    small = fits("gpt2-6m", "--sequence", 64, "--set", "layers=1", "--memory-limit", "10MiB").stdout
    assert "does not fit on a card with 10MiB" in " ".join(small.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["llama-9b"], "no such model; there are"),
        (["gpt2-6m", "--card", "RTX 9999"], "no card of our data"),
        (["gpt2-6m", "--card", "RTX 4060 Ti"], "RTX 4060 Ti"),
        (["gpt2-6m", "--card", "L4", "--memory-limit", "8GiB"], "give one of them"),
        (["gpt2-6m", "--precision", "fp61"], "did you mean fp16?"),
        (["gpt2-6m", "--method", "lora"], "--method lora: suite gpt has no methods"),
        (["gpt2-6m", "--set", "width=10"], "not a multiple"),
    ],
)
def test_a_wrong_word_is_named(fits, words, sentence):
    done = fits(*words)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())


def test_a_suite_without_optimizers_is_named(fits, tmp_path):
    (tmp_path / "mine.py").write_text(
        '"""Mine."""\nfrom gpubench import Blueprint, Param, Suite\n'
        "import torch\n"
        "SUITE = Suite(print, ('m',), {'context': Param(8, 'length')}, 1, fits=True,\n"
        "    blueprint=lambda trial: Blueprint(torch.nn.Linear(1, 1), (), 1, 1, {}))\n"
    )
    assert "the blueprint of suite mine has no optimizers" in fits("m", "--suite", "mine.py").stderr
    assert "none in this suite" in fits("x", "--suite", "largebatch").stderr
