"""The table of all precisions as plain values: name, order, dtypes, master weights, whether the loss is scaled.

`gpubench/training/precision.py` turns them into torch's dtypes and switches.
"""

from collections.abc import Mapping
from dataclasses import dataclass

FLOAT32 = "float32"


@dataclass(frozen=True)
class Precision:
    """One precision: how it computes, and the errors by which a trial recognises it."""

    name: str
    probe_errors: tuple[float, float]
    """Lowest and highest relative error of a small matmul, convolution and RNN, compared with float64.

    The ranges are wider than the measured errors (norm-wise, inner dimension 512): fp32 2e-7 (cuDNN's Winograd
    convolutions reached 1.5e-5, sonots/cumo#501), TF32 and fp16 3e-4 to 5e-4, bf16 3e-3 to 4e-3. TF32 and fp16 have the
    same range: torch's switches and the dtypes of operands distinguish them.
    """
    products: str
    """The precision of its multiplications. A card must support this precision too, and the peak FLOP/s in it apply."""
    autocast: str = ""
    """torch's dtype of autocast; empty without autocast."""
    tf32: bool = False
    """Whether TF32 is allowed."""
    scaled: bool = False
    """Whether a GradScaler scales the loss."""
    weights: str = FLOAT32
    """torch's dtype of the model's own weights."""
    masters: bool = False
    """Whether BatchNorm and the optimizer's copy of the weights stay float32 although `weights` is a 16-bit dtype."""
    linears: tuple[str, ...] = ()
    """torch's dtypes of the operands of large linear layers; empty: as in all other layers."""

    @property
    def pure(self) -> bool:
        """Whether the optimizer updates weights that are not float32."""
        return self.weights != FLOAT32 and not self.masters

    @property
    def full(self) -> bool:
        """Whether multiplications get float32 operands (TF32 included); otherwise the precision is mixed."""
        return not self.autocast and self.weights == FLOAT32


_FP32, _FP16, _BF16, _FLOAT8, _INT8 = (0.0, 4.5e-5), (5e-5, 1.5e-3), (1e-3, 2e-2), (2e-2, 8e-2), (4e-3, 2e-2)
_FLOAT8_TYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
PRECISIONS: Mapping[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision("fp32", _FP32, "fp32"),
        Precision("tf32", _FP16, "tf32", tf32=True),
        Precision("fp16", _FP16, "fp16", autocast="float16", scaled=True),
        Precision("bf16", _BF16, "bf16", autocast="bfloat16"),
        Precision("fp16-master", _FP16, "fp16", weights="float16", masters=True, scaled=True),
        Precision("fp16-pure", _FP16, "fp16", weights="float16"),
        Precision("bf16-pure", _BF16, "bf16", weights="bfloat16"),
        Precision("float8", _FLOAT8, "float8", autocast="bfloat16", linears=_FLOAT8_TYPES),
        Precision("int8-mixed", _INT8, "int8-mixed", autocast="bfloat16", linears=("int8",)),
    )
}
"""All precisions by name, in the order in which `--precision all` runs them."""
LINEAR_ONLY = frozenset(name for name, precision in PRECISIONS.items() if precision.linears)
"""Precisions that only large linear layers compute in; the rest of the model computes in bf16."""
NO_LARGE_LINEAR = "no linear layer is large enough (sizes: multiples of 16, at least 32; the last layer does not count)"
UNPROVED = ("mxfp8", "nvfp4")
"""Precisions that people ask for, and that are unsupported on every device."""
LEAST_CAPABILITY: Mapping[str, tuple[int, int]] = {
    "float8": (8, 9),
    "int8-mixed": (8, 0),
    "mxfp8": (10, 0),
    "nvfp4": (10, 0),
}
"""Compute capability of the first NVIDIA cards that run these precisions: Ada (e4m3 and e5m2), Ampere (int8 beside
bf16), Blackwell (scales for blocks; docs/precisions.md has the sources)."""
MI300 = ("gfx94", "gfx95")
"""First characters of AMD's names of the MI300 and MI350 chips."""
FULL = frozenset(name for name, precision in PRECISIONS.items() if precision.full)
"""Precisions that are not mixed."""


def multiplied_in(precision: str) -> str:
    """Return the precision of the multiplications in `precision`: fp16 for fp16-master and fp16-pure."""
    declared = PRECISIONS.get(precision)
    return declared.products if declared else precision  # a row may have one that this version does not know


def unsupported(reasons: Mapping[str, str]) -> dict[str, str]:
    """Return the unsupported precisions, each with its reason. `reasons`: by precision of the multiplications."""
    return {
        name: reasons[precision.products] for name, precision in PRECISIONS.items() if precision.products in reasons
    }


def without_low_precision(card: str, capability: tuple[int, int] | None, architecture: str = "") -> dict[str, str]:
    """Return the precisions of 8 bits or less that an accelerator cannot run, each with the reason.

    `capability` is None if the accelerator is not NVIDIA's. `architecture` is AMD's name of the chip (`gfx942`).
    """
    reasons = {}
    for name, least in LEAST_CAPABILITY.items():
        needs = f"{name} needs an NVIDIA card of capability {least[0]}.{least[1]} or later"
        if capability is None:
            mi300 = architecture.startswith(MI300)
            reason = "" if name == "float8" and mi300 else needs + ", or an MI300" * (name == "float8")
        else:
            reason = "" if capability >= least else f"{needs}; {card} has {capability[0]}.{capability[1]}"
        if reason or name in UNPROVED:
            reasons[name] = reason or f"gpubench has no proof of {name} yet"
    return reasons
