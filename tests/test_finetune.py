"""The suite finetune: its sizes and FLOPs, LoRA against plain torch, the proof of QLoRA, and that it learns."""

import json
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from gpubench.suites import finetune
from measured_rows import rows_of_run
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from gpubench.errors import UserError
from gpubench.suite import files

LLM = "needs the extra llm: pip install -e '.[llm]'"
transformers = pytest.importorskip("transformers", reason=LLM)
pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason=LLM)
SMALL = {"context": 32, "tokens": 512, "valid_tokens": 64, "lr": 0.003}
CPU = torch.device("cpu")


@cache
def training():
    """The suite's training, imported where a test needs it: peft takes seconds."""
    return import_module("gpubench.suites.finetune.training")


def trial(model="llama-6m", precision="fp32", **settings):
    params = files.find("finetune").resolve_params({"context": "32", **settings}, model)
    case = SimpleNamespace(model=model, precision=precision, processes=1, weights="", params=params)
    return SimpleNamespace(case=case, params=SimpleNamespace(**params), batch_size=2, seed=1, rank=0)


def text(seed=0, length=32):
    return torch.randint(0, 256, (2, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("model", "millions"), [("llama-6m", 5.87), ("smollm-135m", 134.5), ("llama-1b", 1235.8), ("llama-8b", 8030.3)]
)
def test_the_sizes_are_those_of_their_names(model, millions):
    with torch.device("meta"):
        llama = training().network_of(trial(model, method="full"), torch.device("meta"))
    assert sum(weight.numel() for weight in llama.parameters()) == pytest.approx(millions * 1e6, rel=1e-3)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_flops_are_those_of_torchs_counter(method):
    """But for gradients of what the first layer reads."""
    asked = trial(method=method, checkpointing="false")
    llama = training().network_of(asked, CPU)
    # Without fused attention, of which not each release counts all.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        llama(text(), text()).backward()
    size = finetune.SIZES["llama-6m"]
    unread = sum(2 * inputs * outputs for inputs, outputs in size.matrices[:3]) if method == "lora" else 0
    unread += 3 * 2 * size.width * 16 if method == "lora" else 0
    counted = counter.get_total_flops() / text().numel() + unread
    assert finetune.flops("llama-6m", asked.case.params) == pytest.approx(counted, rel=1e-3)


def test_lora_is_w_plus_ba_in_plain_torch():
    """Output, and gradients of A and B, of a Llama whose weights are W + 2 B A."""
    torch.manual_seed(0)
    adapted = training().network_of(trial(rank="4"), CPU)
    plain = transformers.LlamaForCausalLM(adapted.llama.config)
    weights = {name.replace(".base_layer", ""): weight for name, weight in adapted.llama.named_parameters()}
    frozen = {name: weight for name, weight in weights.items() if ".lora_" not in name}
    factors = {}
    for name, weight in weights.items():
        if ".lora_B." in name:
            torch.nn.init.normal_(weight, std=0.02)
            layer = name.partition(".lora_B.")[0]
            factors[layer] = [
                weights[f"{layer}.lora_{side}.default.weight"].detach().clone().requires_grad_() for side in "AB"
            ]
    assert len(factors) == 7 * 8
    merged = frozen | {f"{layer}.weight": frozen[f"{layer}.weight"] + 2 * b @ a for layer, (a, b) in factors.items()}
    logits = functional_call(plain, merged, (text(),)).logits
    assert torch.allclose(adapted.llama(text()).logits, logits, rtol=0, atol=1e-5)
    loss = cross_entropy(logits.flatten(0, 1), text(1).flatten())
    loss.backward()
    adapted_loss = adapted(text(), text(1))
    assert torch.allclose(adapted_loss, loss, rtol=0, atol=1e-5)
    adapted_loss.backward()
    for layer, (a, b) in factors.items():
        for side, expected in (("A", a), ("B", b)):
            gradient = weights[f"{layer}.lora_{side}.default.weight"].grad
            assert torch.allclose(gradient, expected.grad, rtol=1e-5, atol=1e-5), layer
    assert all(weight.grad is None for weight in frozen.values())


def test_what_is_frozen_and_checkpointed_has_the_right_bits_and_gradients():
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16-pure", torch.float16)):
        llama = training().network_of(trial(precision=precision), CPU)
        assert {weight.dtype for weight in llama.parameters() if not weight.requires_grad} == {dtype}
        assert {weight.dtype for weight in llama.parameters() if weight.requires_grad} == {torch.float32}
    full = training().network_of(trial(precision="bf16", method="full"), CPU)
    assert {weight.dtype for weight in full.parameters()} == {torch.float32}
    gradients = []
    for checkpointing in ("true", "false"):
        torch.manual_seed(0)
        llama = training().network_of(trial(checkpointing=checkpointing, method="full"), CPU)
        llama(text(), text(1)).backward()
        gradients.append([weight.grad for weight in llama.parameters()])
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(*gradients, strict=True))


@pytest.fixture
def run(cli, tmp_path, monkeypatch):
    """Trains a Llama with one of its eight layers: 7 of 56 linear layers."""
    sizes = training().SIZES
    monkeypatch.setitem(sizes, "llama-6m", replace(sizes["llama-6m"], layers=1))
    data = tmp_path / "wikitext-2"
    data.mkdir()
    for split in ("train", "valid", "test"):
        (data / f"{split}.txt").write_text("one two three four five\n" * 50)

    def rows(*words, method="lora", precision="both", mode="--full", code=0):
        (tmp_path / "a.csv").unlink(missing_ok=True)
        options = ("--models", "llama-6m", "--precision", precision, mode, "--batch", 2, "--data", tmp_path)
        return rows_of_run(cli, tmp_path, "finetune", *options, *words, code=code, method=method, **SMALL)

    return rows


@pytest.mark.parametrize("method", ["lora", pytest.param("full", marks=pytest.mark.e2e)])
def test_it_learns_and_proves_its_precision(run, method):
    frame = run(method=method)
    assert set(frame["precision"]) == {"fp32", "bf16"}
    assert frame["loss"].max() < 5.3  # log(256) is 5.55
    proof = frame.set_index("precision").loc["bf16", "precision_proof"]
    assert ("frozen bfloat16 x12" in proof) == (method == "lora")


def test_qlora_has_four_bits_and_its_calls_are_seen(run, monkeypatch):
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora: pip install -e '.[qlora]'")
    rows = run(method="qlora", mode="--quick").set_index("precision")
    assert "ask for bf16 or fp16" in rows.loc["fp32", "reason"]
    assert "frozen uint8 x7" in rows.loc["bf16", "precision_proof"]
    assert "matmul uint8 x" in rows.loc["bf16", "precision_proof"]
    monkeypatch.setattr(training(), "quantize", lambda layer: None)
    frame = run(method="qlora", mode="--quick", precision="bf16", code=4)
    assert "asked for qlora, but no call of dequantize_4bit or gemm_4bit was seen" in frame.iloc[0]["reason"]


def saved_llama(folder, **changes):
    size = training().SIZES["llama-6m"]
    shape = (size.layers, size.width, size.inner, size.heads, size.shared_heads)
    sizes = dict(zip(training().SHAPE, shape, strict=True), vocab_size=256, tie_word_embeddings=True) | changes
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).save_pretrained(folder)
    tokens = {chr(number): number for number in range(32, 127)} | {"\n": 0}
    model = {"type": "WordLevel", "vocab": tokens, "unk_token": "\n"}
    splitter = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model, "pre_tokenizer": splitter}))


def test_given_weights_are_read_with_their_tokenizer_and_those_of_another_size_refused(run, tmp_path):
    saved_llama(tmp_path / "mine")
    given = ("--set", "weights=given", "--weights", tmp_path / "mine")
    frame = run(*given, precision="bf16", mode="--quick")
    assert frame.iloc[0]["weights"].startswith("llama-6m-")
    asked = trial(weights="given", method="full")
    asked.weights_dir = str(tmp_path / "mine")
    logits = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "mine")(text()).logits.flatten(0, 1)
    assert torch.allclose(training().network_of(asked, CPU)(text(), text(1)), cross_entropy(logits, text(1).flatten()))
    saved_llama(tmp_path / "mine", num_hidden_layers=2)
    frame = run(*given, precision="bf16", code=4)
    assert "config.json: no llama-6m, whose num_hidden_layers" in frame.iloc[0]["reason"]
    asked.synthetic, asked.data_dir, asked.case.weights = False, str(tmp_path), "llama-6m-1"
    too_few = "has 20 tokens; give a smaller --set context"  # 40 bytes are enough
    for encoding, count, words in (("utf-8", 20, too_few), ("latin-1", 40, "convert it: iconv")):
        (tmp_path / "wikitext-2" / "valid.txt").write_text("é" * count, encoding=encoding)
        with pytest.raises(UserError, match=words):
            training().texts_of(asked)


def test_an_extra_that_is_missing_is_named_before_anything_runs(cli, tmp_path, monkeypatch):
    def without(*missing):
        monkeypatch.setattr("gpubench.suite.suite.find_spec", lambda name: None if name in missing else object())

    without("peft")
    sentence = "not installed: peft (pip install -e '.[llm]')"
    assert sentence in cli("list").stdout
    assert sentence in cli("list", "finetune").stdout
    assert sentence in cli("fits", "llama-6m").stderr
    done = cli("run", "--suite", "finetune", "--synthetic", "--dry-run")
    assert " ".join(done.stdout.split() + done.stderr.split()).count(sentence) == 1
    without()
    assert "not installed" not in cli("list").stdout
    monkeypatch.setattr(finetune, "find_spec", lambda name: None)
    case = SimpleNamespace(params={"method": "qlora"}, precision="bf16")
    assert finetune.refuse(case) == "method=qlora: not installed: bitsandbytes (pip install -e '.[qlora]')"
    case.params["method"] = "lora"
    assert finetune.refuse(case) == ""


def test_the_rate_rises_and_stays():
    assert [training().rate_at(step, 100) for step in (0, 3, 99)] == [0.25, 1.0, 1.0]
