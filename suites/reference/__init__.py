"""ResNet-50 and a BERT-size encoder on a random batch that stays on the device, as in most published rates.

`resnet50` is what timm's benchmark and most tables of cards measure: ResNet-50 on 224 pixels, SGD with momentum.
timm's figure of an RTX 3090 is 1,218 images/s (mixed precision, channels last, batch 512, torch 1.12; 2022).
`bert-base` is an encoder of BERT-base's size on 128 tokens, which is nearly all matrix products. It has no data, no
dropout and a classifier of two classes, so no published figure is exactly comparable.

Neither learns anything. Timed: forward, backward and step. Not timed: making the network and the batch.

`gpubench run --suite reference` ends with the card's rate beside published ones. `gpubench doctor --against FILES`
compares the rates of both networks with those of other cards of the same model.
"""

from collections.abc import Mapping

from gpubench import MEMORY_FORMAT, Param, ParamValue, Suite, imported

IMAGES = 1_281_167
"""Training images of ImageNet."""
SEQUENCE, VOCABULARY = 128, 30_522
"""Tokens of a sequence, and size of BERT's vocabulary."""


def most_elements(model: str, params: Mapping[str, ParamValue]) -> int:
    """Return elements per sample: 64 channels at half the size after the first convolution, or 3,072 per token."""
    return 64 * (-(-int(params["image_size"]) // 2)) ** 2 if model == "resnet50" else 3072 * SEQUENCE


SUITE = Suite(
    train=imported(f"{__name__}.training", "train"),
    blueprint=imported(f"{__name__}.training", "blueprint"),
    version=1,
    models=("resnet50", "bert-base"),
    params={
        "epochs": Param(1, "epochs of the whole run", least=1),
        "samples": Param(IMAGES, "images or sequences in an epoch", least=1),
        "image_size": Param(224, "pixels of an image", least=32),
        "layers": Param(12, "layers of bert-base", least=1),
        "lr": Param(1e-3, "learning rate"),
        "memory_format": MEMORY_FORMAT,
    },
    studies=("placing",),
    unit="samples",
    cpu_batch=8,
    train_samples=lambda params: int(params["samples"]),
    most_elements=most_elements,
)
