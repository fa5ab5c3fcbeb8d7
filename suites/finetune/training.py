"""Llama with its loss, made of transformers, peft and bitsandbytes; the optimizer, and the proof of QLoRA."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from tokenizers import Tokenizer
from torch import nn
from torch.nn.functional import cross_entropy

# torch documents this extension point ("Extending PyTorch"), despite the underscore in its path.
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from gpubench import Blueprint, Clock, Trial, UserError
from gpubench.data.datasets import locate_weights
from gpubench.suite.precisions import PRECISIONS
from gpubench.training import mode_of
from gpubench.training.sequences import blueprint_of, load_text, train_on_text

from . import SIZES

ADAPTER = "default"
"""peft's name of the only adapter."""
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""Linear layers that get an adapter, and 4-bit weights with QLoRA: all except the last."""
SHAPE = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
WARMUP = 0.03
"""Share of the steps in which the learning rate rises."""
FOUR_BIT_CALLS = {"gemm_4bit", "dequantize_4bit"}
"""Operators of bitsandbytes that read 4-bit weights."""


class WithLoss(nn.Module):
    """A language model that returns its loss."""

    def __init__(self, llama: nn.Module) -> None:
        super().__init__()
        self.llama = llama

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss, in nats per token, of int64 tokens (N, T); `targets` (N, T): the tokens that follow."""
        # LlamaForCausalLM.forward computes the same, but waits for the device to check whether sequences are packed.
        llama: Any = self.llama
        x, positions = llama.model.embed_tokens(tokens), torch.arange(tokens.shape[1], device=tokens.device)[None]
        rotations = llama.model.rotary_emb(x, position_ids=positions)
        for layer in llama.model.layers:
            x = layer(x, position_embeddings=rotations, position_ids=positions)
        logits = llama.lm_head(llama.model.norm(x))
        return cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def network_of(trial: Trial, device: torch.device, *, only_shapes: bool = False) -> WithLoss:
    """Return the trial's network on the device. Raises UserError if the given weights are another model's.

    With `only_shapes` its weights are random, and tensors of the same size replace 4-bit weights.
    """
    params, precision = trial.params, PRECISIONS[trial.case.precision]
    # Trained weights keep the precision's dtype. Frozen ones get autocast's: otherwise it casts them for each product.
    frozen = precision.weights if params.method == "full" else precision.autocast or precision.weights
    dtype: torch.dtype = getattr(torch, frozen)
    if only_shapes or params.weights == "random" or trial.case.weights == "random":
        llama = random_llama(trial, dtype, device, stand_in if only_shapes else quantize)
    else:
        llama = given_llama(trial, dtype, device)
    if params.method != "full":
        add_adapters(llama, params.rank, device)
    if params.checkpointing:
        # Older releases have only the second name; newer ones warn that it is deprecated.
        enable = getattr(llama, "activation_checkpointing_enable", None) or llama.gradient_checkpointing_enable
        enable()
    # In train mode for validation too: there is no dropout, and in `eval` bitsandbytes repacks weights on a CPU.
    return WithLoss(llama).train()


def random_llama(
    trial: Trial, dtype: torch.dtype, device: torch.device, narrow: Callable[[nn.Module], None]
) -> LlamaForCausalLM:
    """Return a Llama with random weights. With QLoRA `narrow` is called with each layer before the next is made."""
    size = SIZES[trial.case.model]
    shape = (0, size.width, size.inner, size.heads, size.shared_heads)
    sizes = {**dict(zip(SHAPE, shape, strict=True)), "vocab_size": size.vocabulary, "tie_word_embeddings": size.tied}
    config = LlamaConfig(**sizes, use_cache=False)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    with device:
        llama = LlamaForCausalLM(config)
        for index in range(size.layers):
            layer = LlamaDecoderLayer(config, index)
            for weight in layer.parameters():
                if weight.ndim == 2:
                    nn.init.normal_(weight, std=config.initializer_range)
            if trial.params.method == "qlora":
                narrow(layer)
            llama.model.layers.append(layer)
    torch.set_default_dtype(before)
    config.num_hidden_layers = size.layers
    return llama


def given_llama(trial: Trial, dtype: torch.dtype, device: torch.device) -> LlamaForCausalLM:
    """Return the Llama in --weights DIR."""
    path = weights_folder(trial)
    llama = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True, use_cache=False)
    size, config = SIZES[trial.case.model], llama.config
    wanted = (size.layers, size.width, size.inner, size.heads, size.shared_heads)
    if tuple(getattr(config, name, None) for name in SHAPE) != wanted:
        raise UserError(f"{path / 'config.json'}: no {trial.case.model}, whose {', '.join(SHAPE)} are {wanted}")
    if trial.params.method == "qlora":
        for layer in llama.model.layers:
            quantize(layer.to(device))
    return llama.to(device)


def weights_folder(trial: Trial) -> Path:
    """Return the folder with the given weights."""
    path = locate_weights(trial.case.model, Path(trial.weights_dir))
    assert path is not None  # the parent process found the folder before it planned this trial
    return path


def linears_of(layer: nn.Module) -> list[tuple[str, nn.Linear]]:
    """Return the linear layers inside a layer, with their names."""
    return [(name, module) for name, module in layer.named_modules() if isinstance(module, nn.Linear)]


def quantize(layer: nn.Module) -> None:
    """Replace the linear layers of a layer by 4-bit ones (Dettmers et al., "QLoRA", 2023), on their device."""
    from bitsandbytes.functional import quantize_4bit
    from bitsandbytes.nn import Linear4bit, Params4bit

    for name, linear in linears_of(layer):
        packed, state = quantize_4bit(linear.weight.detach(), quant_type="nf4")
        narrow = Linear4bit(linear.in_features, linear.out_features, bias=False, device="meta")
        narrow.weight = Params4bit(packed, quant_state=state, quant_type="nf4", bnb_quantized=True, module=narrow)
        layer.set_submodule(name, narrow)


def stand_in(layer: nn.Module) -> None:
    """Replace weights by as many bytes as `quantize` makes of them: bitsandbytes accepts no tensors without data.

    These are half a byte for each weight, and an fp32 scale for each 64 weights.
    """
    for _, linear in linears_of(layer):
        linear.register_buffer("packed", torch.empty(linear.weight.numel() * 9 // 16, dtype=torch.uint8))
        weight = linear.weight.new_empty(1, 1).expand(linear.weight.shape)
        linear.weight = nn.Parameter(weight, requires_grad=False)


def add_adapters(llama: LlamaForCausalLM, rank: int, device: torch.device) -> None:
    """Freeze the weights and add peft's adapters in fp32: W x becomes W x + 2 B A x, with B zero at first."""
    llama.is_loaded_in_4bit = True  # peft then looks for bitsandbytes' layers
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS)
    # If the default device is not meta, peft calls Module.to, which the tensors of `gpubench fits` refuse.
    with torch.device("meta"):
        inject_adapter_in_model(config, llama, ADAPTER)
    for module in llama.modules():
        if isinstance(module, LoraLayer):
            for adapters in (module.lora_A, module.lora_B):
                inputs, outputs = adapters[ADAPTER].in_features, adapters[ADAPTER].out_features
                adapters[ADAPTER] = nn.Linear(inputs, outputs, bias=False, device=device)
            nn.init.zeros_(module.lora_B[ADAPTER].weight)


def texts_of(trial: Trial) -> list[torch.Tensor]:
    """Return the training and the validation text as tokens (N,). UserError if one is too short or not UTF-8."""
    if trial.synthetic or trial.case.weights in {"", "random"}:
        return load_text(trial, SIZES[trial.case.model].vocabulary)
    tokenizer = Tokenizer.from_file(str(weights_folder(trial) / "tokenizer.json"))
    try:
        texts = [bytes(text.numpy()).decode() for text in load_text(trial)]
    except UnicodeDecodeError as error:
        raise UserError(f"{trial.data_dir}: not UTF-8 ({error}); convert it: iconv -f ENCODING -t UTF-8") from error
    tokens = [torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]
    if (fewest := min(map(len, tokens))) <= trial.params.context:
        raise UserError(f"the shorter of the two texts has {fewest} tokens; give a smaller --set context")
    return tokens


def rate_at(step: int, steps: int) -> float:
    """Return the share of the highest learning rate: it rises linearly and then stays, as in QLoRA."""
    return min(1.0, (step + 1) / (WARMUP * steps + 1))


def optimizer_of(trial: Trial, network: torch.nn.Module) -> torch.optim.Optimizer:
    """Return AdamW for the weights that are trained."""
    trained = [weight for weight in network.parameters() if weight.requires_grad]
    eps = mode_of(trial.case.precision, trial.case.device).adam_eps
    # A GradScaler waits for the device in every step of an optimizer that is not fused.
    return torch.optim.AdamW(trained, lr=trial.params.lr, weight_decay=0.0, eps=eps, fused=True)


def blueprint(trial: Trial) -> Blueprint:
    """Return the network, its optimizer, and the learning rate."""
    network = network_of(trial, torch.device("cpu"), only_shapes=True)
    return blueprint_of(trial, network, lambda: [optimizer_of(trial, network)], rate_at)


class FourBitWatch(TorchDispatchMode):
    """Counts the calls of bitsandbytes that read 4-bit weights."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the call, and count it if it reads 4-bit weights."""
        self.calls += func.__name__.partition(".")[0] in FOUR_BIT_CALLS
        return func(*args, **(kwargs or {}))


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Run the training; return the validation loss in nats per token."""
    texts = texts_of(trial)
    torch.manual_seed(trial.seed)
    network = network_of(trial, torch.device(trial.case.device))
    mode_of(trial.case.precision, trial.case.device).prepare(network)
    watch = FourBitWatch()
    quality = train_on_text(trial, clock, texts, network, [optimizer_of(trial, network)], rate_at, watch=watch)
    if trial.params.method == "qlora" and not watch.calls:
        raise RuntimeError(f"asked for qlora, but no call of {' or '.join(sorted(FOUR_BIT_CALLS))} was seen")
    return quality
