"""Language models on WikiText-2 (default: LSTM): time of a whole run.

After the word language model in NVIDIA/apex, which came from pytorch/examples. S. Bhutani (2019, see suite `resnet`)
trained it for 30 epochs. `preset=article` has Apex's sizes of 18 January 2019 (79ad5a88): 200 units, batch 20, the
vocabulary as it is. So most matrix sizes do not suit tensor cores. `preset=tensorcore` has Apex's sizes of two weeks
later (43522e63): 1504 units, batch 24, everything a multiple of 8.

The text is in columns, and each step reads `bptt` rows. The hidden state goes on to the next step without its history.
SGD clips gradients. Its learning rate is divided by 4 whenever validation does not improve.

Samples are predicted tokens. Timed: all epochs, training and validation. Not timed: imports, building the model,
reading the text, and the test at the end with the weights of the best epoch. Apex's seed is `--seed 1111`.

training.py has the text, the networks and the loop.
"""

from collections.abc import Mapping
from importlib.machinery import PathFinder
from importlib.util import find_spec

from gpubench import Case, Param, ParamValue, Suite, imported
from gpubench.suite.precisions import LINEAR_ONLY, NO_LARGE_LINEAR
from gpubench.suite.trial import rnn_refusal

TRAIN_TOKENS, VALID_TOKENS, TEST_TOKENS = 2_088_628, 217_646, 245_569
VOCABULARY = 33_278
"""Words in WikiText-2's vocabulary."""
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
ARTICLE_BATCH, TENSORCORE_BATCH = 20, 24
APEX_MODULES = ("optimizers", "amp", "fp16_utils", "multi_tensor_apply")
"""Modules that `apex.fp16_utils.FP16_Optimizer` needs. An `apex` without `apex.optimizers` is not NVIDIA's."""


def flops(model: str, params: Mapping[str, ParamValue]) -> float:
    """Return the FLOPs of forward and backward per token, with WikiText-2's vocabulary.

    Matrix products only; a multiplication and an addition are two FLOPs, and backward is twice forward. An RNN's layer
    has a product of (input + hidden) x hidden for each gate. Attention counts all pairs of the `bptt` positions, though
    a causal kernel may skip half of them.
    """
    size = {name: int(params[name]) for name in ("emsize", "nhid", "nlayers", "bptt", "vocab_multiple")}
    words = -(-VOCABULARY // size["vocab_multiple"]) * size["vocab_multiple"]
    width, hidden, depth = size["emsize"], size["nhid"], size["nlayers"]
    if model == "transformer":
        products = depth * (4 * width**2 + 2 * width * hidden + 2 * size["bptt"] * width) + width * words
    else:
        inputs = [width] + [hidden] * (depth - 1)
        products = sum(GATES[model] * hidden * (width + hidden) for width in inputs) + hidden * words
    return 3.0 * 2.0 * products


def recipe_batch(model: str, params: Mapping[str, ParamValue], precision: str) -> int:
    """Return the preset's batch, the same for all precisions on every device."""
    return TENSORCORE_BATCH if params["preset"] == "tensorcore" else ARTICLE_BATCH


def why_no_apex() -> str:
    """Return why `apex.fp16_utils.FP16_Optimizer` cannot be used; empty if its modules are installed."""
    spec = find_spec("apex")
    if spec is None:
        return "NVIDIA Apex is not installed"
    # find_spec("apex.amp") would import apex itself; the path finder only looks.
    folders = list(spec.submodule_search_locations or ())
    missing = [name for name in APEX_MODULES if not PathFinder.find_spec(f"apex.{name}", folders)]
    if "optimizers" in missing:
        return "apex is not NVIDIA Apex but the package index's unrelated apex (it has no apex.optimizers)"
    # Apex removed apex.amp and apex.fp16_utils in May 2025 (NVIDIA/apex#1896).
    return f"apex has no {', '.join(missing)}; the last tag with all of them is 25.05" if missing else ""


def refuse(case: Case) -> str:
    """Return why this case cannot run: its layers lack this precision, or engine=apex cannot train it."""
    sizes = case.params["emsize"], case.params["nhid"]
    if case.precision in LINEAR_ONLY and (case.model != "transformer" or any(int(size) % 16 for size in sizes)):
        return NO_LARGE_LINEAR
    if case.model != "transformer" and (reason := rnn_refusal(case.precision, case.device)):
        return reason
    if case.params["engine"] != "apex":
        return ""
    if case.precision != "fp16-master":
        return f"engine=apex: Apex trains only in fp16-master; use engine=torch for {case.precision}"
    if not case.device.startswith("cuda"):
        return "engine=apex: Apex's FP16_Optimizer takes CUDA tensors only"
    reason = why_no_apex()
    return f"engine=apex: {reason}; engine=torch needs no Apex" if reason else ""


SUITE = Suite(
    train=imported(f"{__name__}.training", "train"),
    blueprint=imported(f"{__name__}.training", "blueprint"),
    version=2,
    models=("lstm", "gru", "rnn_tanh", "rnn_relu", "transformer"),
    default_models=("lstm",),
    params={
        "preset": Param(
            "article", "Apex's network of January 2019, or sizes in multiples of 8", choices=("article", "tensorcore")
        ),
        "epochs": Param(30, "epochs of the whole run", least=1),
        "emsize": Param(200, "width of the embedding", least=1),
        "nhid": Param(200, "hidden units of a layer", least=1),
        "nlayers": Param(2, "layers", least=1),
        "nhead": Param(2, "attention heads of the transformer", least=1),
        "dropout": Param(0.2, "share of activations dropped in training"),
        "tied": Param(False, "use one matrix as both embedding and decoder"),
        "vocab_multiple": Param(1, "pad the vocabulary to a multiple of this", least=1),
        "bptt": Param(35, "rows of text in a step, and length of back-propagation", least=1),
        "lr": Param(20.0, "learning rate of SGD"),
        "clip": Param(0.25, "largest norm of the gradients"),
        "valid_batch": Param(10, "columns of the validation and test text", least=1),
        "engine": Param("torch", "what takes optimizer steps: torch, or NVIDIA Apex", choices=("torch", "apex")),
        "train_tokens": Param(0, "train on only the first N tokens; 0 is all"),
        "valid_tokens": Param(0, "validate and test on only the first N tokens; 0 is all"),
    },
    presets={
        # With the LSTM's learning rate of 20 these two diverge. pytorch/examples uses 5 for its transformer.
        "model": {"rnn_relu": {"lr": 5.0}, "transformer": {"lr": 5.0}},
        "preset": {"tensorcore": {"emsize": 1504, "nhid": 1504, "dropout": 0.65, "vocab_multiple": 8}},
    },
    quality="perplexity",
    better="lower",
    unit="tokens",
    recipe_batch=recipe_batch,
    train_samples=lambda params: int(params["train_tokens"]) or TRAIN_TOKENS,
    samples_per_unit=35,
    data=("wikitext-2",),
    refuse=refuse,
    flops=flops,
    # Range of projected / full seconds in 28 pairs (benchmarks/projection.py, a shared CPU; docs/research/tested.md).
    projected_over_full=(0.858, 1.144),
)
