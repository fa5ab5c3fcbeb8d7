"""Declares every precision, as plain values: its name and order, dtypes, master weights, loss scale, rules.

`gpubench/training/precision.py` makes torch's dtypes and switches of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

FLOAT32 = "float32"


@dataclass(frozen=True)
class Precision:
    """One precision: how it computes, and the relative error by which a probe recognises it.

    The bands are wide around errors measured against float64 (norm-wise, inner dimension 512): fp32
    2e-7 (1.5e-5 was seen of cuDNN's Winograd convolutions, sonots/cumo#501), TF32 and fp16 3e-4 to 5e-4, bf16
    3e-3 to 4e-3. TF32 and fp16 share theirs: flags and operand dtypes tell those two apart.
    """

    name: str
    band: tuple[float, float]
    products: str
    """The precision whose products these are: a card that lacks that one lacks this one, and has one peak for both."""
    autocast: str = ""
    """torch's dtype of autocast; empty without autocast."""
    tf32: bool = False
    """Whether TF32 is allowed."""
    scaled: bool = False
    """Whether a GradScaler scales the loss."""
    weights: str = FLOAT32
    """torch's dtype of the model's own weights."""
    masters: bool = False
    """Whether BatchNorm and the optimizer's copy of the weights stay float32 where the model does not."""

    @property
    def pure(self) -> bool:
        """Whether the optimizer steps weights that are not float32."""
        return self.weights != FLOAT32 and not self.masters

    @property
    def full(self) -> bool:
        """Whether products get operands of float32, TF32 included; else it is a mixed one."""
        return not self.autocast and self.weights == FLOAT32


_FP32, _FP16, _BF16 = (0.0, 4.5e-5), (5e-5, 1.5e-3), (1e-3, 2e-2)

PRECISIONS: Mapping[str, Precision] = {
    each.name: each
    for each in (
        Precision("fp32", _FP32, "fp32"),
        Precision("tf32", _FP16, "tf32", tf32=True),
        Precision("fp16", _FP16, "fp16", autocast="float16", scaled=True),
        Precision("bf16", _BF16, "bf16", autocast="bfloat16"),
        Precision("fp16-master", _FP16, "fp16", weights="float16", masters=True, scaled=True),
        Precision("fp16-pure", _FP16, "fp16", weights="float16"),
    )
}
"""By name, in the order `--precision all` runs them."""

FULL = frozenset(name for name, each in PRECISIONS.items() if each.full)
"""Precisions that are not mixed ones."""


def multiplied_in(precision: str) -> str:
    """The precision whose products these are: fp16-master and fp16-pure multiply as fp16 does."""
    known = PRECISIONS.get(precision)
    return known.products if known else precision  # a row may have one that this version does not know


def unsupported(reasons: Mapping[str, str]) -> dict[str, str]:
    """Why a device computes in none of the precisions that have these products (`{"bf16": "emulated"}`)."""
    return {name: reasons[each.products] for name, each in PRECISIONS.items() if each.products in reasons}
