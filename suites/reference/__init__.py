"""Two networks that others publish speeds of, timed as they time them: a made-up batch that stays on the device.

`resnet50` is what timm's benchmark and most tables of cards measure: ResNet-50 on 224 pixels, SGD with momentum.
timm's figure of an RTX 3090 is 1,218 images/s (mixed precision, channels last, batch 512, torch 1.12; 2022).
`bert-base` is an encoder of BERT-base's size on 128 tokens, which is nearly all matrix products. It has no data, no
dropout and a classifier of two classes, so no published figure is quite its own.

Neither learns anything. Timed: forward, backward and step. Not timed: making the network and the batch.

`gpubench run --suite reference` ends by saying where the card stands among published ones, and
`gpubench doctor --against FILES` compares both rates with the same card in other hosts.
"""

from collections.abc import Mapping

from gpubench import Blueprint, Clock, Param, ParamValue, Suite, Trial

IMAGES = 1_281_167
"""Training images of ImageNet."""
SEQUENCE, VOCABULARY = 128, 30_522
"""Tokens of a sequence, and different ones: BERT's."""


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """One run of the trial's model; it has no accuracy to return."""
    from .training import train_model

    return train_model(trial, clock)


def blueprint(trial: Trial) -> Blueprint:
    """The network; its learning rate never changes."""
    from .training import blueprint_of

    return blueprint_of(trial)


def most_elements(model: str, params: Mapping[str, ParamValue]) -> int:
    """Of a sample: the first convolution's 64 channels at half the size, or a layer's 3,072 features by token."""
    return 64 * (-(-int(params["image_size"]) // 2)) ** 2 if model == "resnet50" else 3072 * SEQUENCE


SUITE = Suite(
    train=train,
    blueprint=blueprint,
    version=1,
    models=("resnet50", "bert-base"),
    params={
        "epochs": Param(1, "epochs of the whole run", least=1),
        "samples": Param(IMAGES, "images or sequences in an epoch", least=1),
        "image_size": Param(224, "pixels of an image", least=32),
        "layers": Param(12, "layers of bert-base", least=1),
        "lr": Param(1e-3, "learning rate"),
        "memory_format": Param(
            "auto",
            "layout of images and weights; auto is the faster one in this precision on this device",
            choices=("auto", "channels_last", "contiguous"),
        ),
    },
    studies=("placing",),
    unit="samples",
    batch="max",
    cpu_batch=8,
    train_samples=lambda params: int(params["samples"]),
    most_elements=most_elements,
)
