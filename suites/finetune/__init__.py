"""Fine-tuning of Llama: tokens per second with all weights, LoRA or QLoRA.

The networks are from transformers (Hugging Face), the adapters from peft: rank 16 beside every linear layer except the
last. `llama-1b` and `llama-8b` have the sizes of Llama 3.2 1B and Llama 3.1 8B, `smollm-135m` those of SmolLM 135M;
`llama-6m` is for CPUs. Weights are random, and rows show this (`weights=random` among the parameters). They cost the
same time as real ones. `--set weights=given --weights DIR` starts from real ones.

With LoRA the frozen weights have 16 bits if the precision computes in 16 bits. Adapters are fp32 if the precision has
fp32 weights. With QLoRA the frozen weights have 4 bits (NF4 with fp32 scales), and are expanded for each product.

Samples are trained tokens. Timed: training steps and validation. The loop is in gpubench/training/sequences.py.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from gpubench import Case, Param, ParamValue, Suite, imported

# If installed, bitsandbytes is imported by peft, and warns on a CPU of missing kernels for inference.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
# If installed, torchao is imported by peft too, and torch then logs a deprecation twice.
logging.getLogger("torch.utils._pytree").addFilter(lambda record: "register_constant() on Enum" not in str(record.msg))

CONTEXT = 2048


@dataclass(frozen=True)
class Size:
    """The sizes of a Llama."""

    layers: int
    width: int
    inner: int
    """Width inside the perceptron of a layer."""
    heads: int
    shared_heads: int
    """Heads of keys and values, each shared by several heads of queries."""
    vocabulary: int
    tied: bool
    """Whether the embedding is also the last layer's matrix."""

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer inside a transformer layer."""
        width, inner, narrow = self.width, self.inner, self.width * self.shared_heads // self.heads
        return [(width, width), (width, narrow), (width, narrow), (width, width), *[(width, inner)] * 2, (inner, width)]


SIZES = {
    "llama-6m": Size(8, 256, 688, 4, 2, 256, True),
    "smollm-135m": Size(30, 576, 1536, 9, 3, 49_152, True),
    "llama-1b": Size(16, 2048, 8192, 32, 8, 128_256, True),
    "llama-8b": Size(32, 4096, 14_336, 32, 8, 128_256, False),
}


def flops(model: str, params: Mapping[str, ParamValue]) -> float:
    """Return the floating-point operations per token, forward and backward; recomputed activations do not count.

    Counts matrix products only, and attention over the whole square of the context. A trained matrix takes three
    products. A frozen one takes two: it has no gradient of its own.
    """
    size = SIZES[model]
    frozen = params["method"] != "full"
    inside = size.layers * sum(inputs * outputs for inputs, outputs in size.matrices)
    adapters = size.layers * sum(int(params["rank"]) * sum(shape) for shape in size.matrices) if frozen else 0
    attention = size.layers * 2 * size.width * int(params["context"])
    weights = inside + size.width * size.vocabulary
    return 2.0 * ((2 if frozen else 3) * weights + 3 * (adapters + attention))


def most_elements(model: str, params: Mapping[str, ParamValue]) -> int:
    """Return the elements of the largest tensor of a sequence: its logits, or the activations inside a layer."""
    return int(params["context"]) * max(SIZES[model].vocabulary, SIZES[model].inner)


def suited(params: Mapping[str, ParamValue], device_kind: str, data: str) -> dict[str, tuple[str, str]]:
    """Return shorter sequences for a CPU."""
    return {"context": ("256", "sequences of 2,048 tokens are too long for a CPU")} if device_kind == "cpu" else {}


def refuse(case: Case) -> str:
    """Return why a case cannot run: QLoRA lacks its extra, or would not compute in 16 bits."""
    if case.params["method"] != "qlora":
        return ""
    if find_spec("bitsandbytes") is None:
        return "method=qlora: not installed: bitsandbytes (pip install -e '.[qlora]')"
    if case.precision not in {"fp16", "bf16"}:
        return "method=qlora: 4-bit weights are expanded to 16 bits for each product; ask for bf16 or fp16"
    return ""


SUITE = Suite(
    train=imported(f"{__name__}.training", "train"),
    blueprint=imported(f"{__name__}.training", "blueprint"),
    version=1,
    models=tuple(SIZES),
    default_models=("smollm-135m",),
    params={
        "method": Param("lora", "full trains all weights; qlora has 4-bit weights", choices=("full", "lora", "qlora")),
        "rank": Param(16, "rank of an adapter", least=1),
        "checkpointing": Param(True, "compute activations of a layer again in the backward pass, to save memory"),
        "epochs": Param(1, "number of epochs, each with `tokens` new random tokens", least=1),
        "tokens": Param(2_097_152, "tokens of an epoch, from random places of the text", least=1),
        "valid_tokens": Param(131_072, "tokens of the validation, from the start of its text", least=1),
        "context": Param(CONTEXT, "tokens of a sequence", least=2),
        "goal": Param(0.0, "validation loss that ends a full run, at the end of an epoch; 0: none"),
        "lr": Param(2e-4, "highest learning rate of AdamW"),
        "weights": Param("random", "initial weights; given: those in --weights DIR", choices=("random", "given")),
    },
    presets={"method": {"full": {"lr": 2e-5}}},
    weights=lambda model, params: model if params["weights"] == "given" else "",
    quality="loss",
    better="lower",
    goal="goal",
    unit="tokens",
    cpu_batch=1,
    train_samples=lambda params: int(params["tokens"]),
    samples_per_unit=CONTEXT,
    most_elements=most_elements,
    data=("wikitext-2",),
    suited=suited,
    extra="llm",
    needs=("transformers", "peft"),
    refuse=refuse,
    flops=flops,
    processes=True,
    fits=True,
)
