"""GPT-2 from random weights, as nanoGPT trains it: tokens per second, and the loss after a fixed number of tokens.

The network is GPT-2 without biases (Radford et al., 2019). The recipe is karpathy/nanoGPT's (3adf61e): AdamW, a
cosine learning rate, gradients clipped at 1, sequences of 1,024 tokens from random places of the text. The text is
WikiText-2, or the text in --data, in bytes. `gpt2-124m` and `gpt2-1.5b` have GPT-2's vocabulary nevertheless, so that
they compute what nanoGPT computes. benchmarks/against_nanogpt.py compares the losses of both.

Samples are trained tokens. Timed: training steps and validation. The loop is in gpubench/training/sequences.py.

Time to a loss: `--full --set goal=2.5 --set epochs=20 --set tokens=524288` validates after each of 20 short epochs, and
ends with the first one whose loss is at most 2.5.
"""

from collections.abc import Mapping

from gpubench import Case, Param, ParamValue, Suite, imported
from gpubench.suite.precisions import multiplied_in

CONTEXT = 1024
GPT2_VOCABULARY = 50_304
"""GPT-2's 50,257 tokens, filled up to a multiple of 64 as in nanoGPT."""


def flops(model: str, params: Mapping[str, ParamValue]) -> float:
    """Return the floating-point operations per token, forward and backward.

    Matrix products only, backward as twice forward, attention over the whole square of the context (Chowdhery et al.,
    2022, appendix B), as nanoGPT does. A formula, because FLOPs of a compiled step cannot be counted.
    """
    layers, width = int(params["layers"]), int(params["width"])
    products = layers * (12 * width**2 + 2 * width * int(params["context"])) + width * int(params["vocabulary"])
    return 3.0 * 2.0 * products


def most_elements(model: str, params: Mapping[str, ParamValue]) -> int:
    """Return the elements of the largest tensor of a sequence: its logits, or the activations inside a layer."""
    return int(params["context"]) * max(int(params["vocabulary"]), 4 * int(params["width"]))


def refuse(case: Case) -> str:
    """Return why a case cannot run: torch's Muon multiplies in bf16, whatever the precision."""
    muon = case.params["optimizer"] == "muon" and multiplied_in(case.precision) in {"fp32", "tf32", "fp16"}
    return "optimizer=muon: torch's Muon multiplies in bf16; ask for bf16" if muon else ""


SUITE = Suite(
    train=imported(f"{__name__}.training", "train"),
    blueprint=imported(f"{__name__}.training", "blueprint"),
    version=1,
    models=("gpt2-6m", "gpt2-124m", "gpt2-1.5b"),
    default_models=("gpt2-124m",),
    params={
        "epochs": Param(1, "number of epochs, each with `tokens` new random tokens", least=1),
        "tokens": Param(10_485_760, "tokens of an epoch, from random places of the text", least=1),
        "valid_tokens": Param(262_144, "tokens of the validation, from the start of its text", least=1),
        "context": Param(CONTEXT, "tokens of a sequence", least=2),
        "layers": Param(12, "layers", least=1),
        "heads": Param(12, "attention heads of a layer", least=1),
        "width": Param(768, "features of a token", least=1),
        "vocabulary": Param(256, "rows of the embedding; a text in bytes uses 256", least=256),
        "optimizer": Param(
            "adamw", "muon: Muon trains the matrices of the layers in bf16, AdamW the rest", choices=("adamw", "muon")
        ),
        "goal": Param(0.0, "validation loss that ends a full run, at the end of an epoch; 0: none"),
        "lr": Param(6e-4, "highest learning rate of AdamW; the last one is a tenth of it"),
        "muon_lr": Param(0.02, "highest learning rate of Muon"),
        "compile": Param(False, "torch.compile the network with its loss"),
    },
    presets={
        "model": {
            "gpt2-6m": {"layers": 8, "heads": 4, "width": 256, "lr": 1e-3},
            "gpt2-124m": {"vocabulary": GPT2_VOCABULARY},
            "gpt2-1.5b": {"layers": 48, "heads": 25, "width": 1600, "vocabulary": GPT2_VOCABULARY, "lr": 2e-4},
        }
    },
    quality="loss",
    better="lower",
    goal="goal",
    unit="tokens",
    cpu_batch=1,
    train_samples=lambda params: int(params["tokens"]),
    samples_per_unit=CONTEXT,
    most_elements=most_elements,
    data=("wikitext-2",),
    refuse=refuse,
    flops=flops,
    processes=True,
    fits=True,
)
