"""The ladder: the recipe of each rung, defined as a change of the previous one."""

from dataclasses import dataclass, replace
from typing import NamedTuple

CLASSES = 10
TRAIN_IMAGES, TEST_IMAGES = 50_000, 10_000
SIZE = 32
MEAN, STD = (125.31, 122.95, 113.87), (62.99, 62.09, 66.70)
"""Mean and standard deviation of the training images' bytes, per channel."""
TEST_BATCH = 1000
GOAL = 0.94
Knots = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Recipe:
    """Everything that a rung may change. The defaults are the first rung."""

    network: str = "dawn"
    twice: bool = True
    """Whether norm and ReLU run twice after the first convolution."""
    epochs: int = 35
    batch: int = 128
    lr: Knots = ((0, 0), (15, 0.1), (15, 0.105), (30, 0.005), (35, 0))
    """(epoch, learning rate for the mean loss) points, linear in between."""
    pipeline: str = "per-sample"
    """per-sample: PIL images, transformed at each use, in `workers` processes, started for each epoch;
    prepared: padded and normalised once, cropped one by one in one persistent process;
    drawn: random numbers for a whole epoch at once, images cropped one by one in the training process;
    device: everything on the device, a batch at a time."""
    edges: tuple[int, ...] = ()
    """Side of the (resized) training images in each epoch, in pixels; empty: always 32."""
    pad: int = 4
    cutout: int = 0
    """Edge of the square set to zero, in pixels."""
    leave_out: float = 0.0
    """Share of the images that an epoch skips, drawn from the half with the smaller losses."""
    leave_out_from: int = 0
    """The first epoch that skips images, counted from 0."""
    brightness: float = 0.0
    """Largest random change of an image's brightness, in standard deviations of the training images."""
    contrast: float = 0.0
    """Largest random change of an image's contrast, as a share."""
    alternate: bool = False
    """Flip an image in every other epoch instead of at random."""
    narrow_norm: bool = True
    """Whether fp16-pure and bf16-pure keep BatchNorm's weights and statistics in 16 bits, as davidcpage/cifar10-fast
    does. All other precisions keep them in fp32."""
    pool_first: bool = False
    """Max-pooling before norm and activation instead of after them."""
    activation: str = "relu"
    celu: float = 0.0
    """Alpha of the CELU activation."""
    ghosts: int = 1
    """Number of parts of a batch that BatchNorm treats as separate batches."""
    norm_scale: bool = True
    """Whether BatchNorm's scale is trained."""
    norm_start: str = "uniform"
    """Initial scale: `uniform` in [0, 1], as in torch 0.4, which the ladder's first rungs used, or `one`."""
    norm_momentum: float = 0.1
    logit_scale: float = 1.0
    label_smoothing: float = 0.0
    weight_decay: float = 5e-4
    momentum: float = 0.9
    bias_lr: float = 1.0
    """Factor of the biases' learning rate; their weight decay is divided by it."""
    head_lr: float = 1.0
    """Factor of the last layer's learning rate; its weight decay is divided by it."""
    muon: float = 0.0
    """Momentum of Muon, which trains the convolutions instead of SGD."""
    whiten: int = 0
    """Side of the patches that a fixed first convolution whitens, in pixels; 0: none."""
    whiten_images: int = 10_000
    """Number of images (the first ones) whose patches define the whitening."""
    whiten_epochs: int = 0
    """Epochs for which the whitening convolution's bias is trained."""
    ema: float = 0.0
    """Decay per step of the weights' average, which is evaluated instead of the weights; 0: no average."""
    views: int = 1
    """Number of views averaged in the evaluation. 2: image and mirror image. 6: both at three places, a pixel apart."""
    doubtful: float = 1.0
    """Share of the images (the least certain ones) that are evaluated with more than one view."""
    channels_last: bool = False
    part_batch: bool = True
    """Whether to train on a last batch that is smaller than the others."""


class Stage(NamedTuple):
    """The settings of an epoch that affect its steps."""

    edge: int
    """Side of an image, in pixels."""
    share: float
    """Share of the images that the epoch trains on."""
    whitening: bool
    """Whether the bias of the whitening convolution is trained."""


def stage_at(recipe: Recipe, epoch: int, epochs: int) -> Stage:
    """Return the stage of an epoch, with the rung's schedule scaled to `epochs` epochs."""
    at = epoch * recipe.epochs // epochs
    return Stage(
        recipe.edges[at] if recipe.edges else SIZE,
        1 - recipe.leave_out if at >= recipe.leave_out_from else 1.0,
        epoch * recipe.epochs < recipe.whiten_epochs * epochs,
    )


def stages_of(recipe: Recipe, epochs: int) -> list[int]:
    """Return the first epoch of each stage, ignoring the whitening, which hardly changes the rate."""
    kinds = [stage_at(recipe, epoch, epochs)[:2] for epoch in range(epochs)]
    return [epoch for epoch in range(epochs) if epoch == 0 or kinds[epoch] != kinds[epoch - 1]]


def peak(epochs: int, lr: float) -> Knots:
    """Return a schedule that rises to `lr` in the first fifth of the epochs, then falls to 0."""
    return ((0, 0), (epochs / 5, lr), (epochs, 0))


def falling(epochs: int) -> Knots:
    """Return a schedule that falls linearly to 0 from the learning rate for batches of 1,536."""
    return ((0, 0.205), (epochs, 0))


def ladder() -> dict[str, Recipe]:
    """Return the rungs in order; each line has the changes of that rung."""
    rungs = {"baseline": (now := Recipe())}
    rungs["no-duplicates"] = now = replace(now, twice=False, lr=((0, 0), (15, 0.1), (30, 0.005), (35, 0)))
    rungs["preprocess-once"] = now = replace(now, pipeline="prepared")
    rungs["batched-rng"] = now = replace(now, pipeline="drawn")
    rungs["batch-512"] = now = replace(now, batch=512, lr=((0, 0), (15, 0.44), (30, 0.005), (35, 0)))
    rungs["bn-fp32"] = now = replace(now, narrow_norm=False)
    rungs["cutout"] = now = replace(now, cutout=8, epochs=30, lr=((0, 0), (8, 0.4), (30, 0)))
    rungs["batch-768"] = now = replace(now, batch=768, lr=((0, 0), (8, 0.6), (30, 0)))
    rungs["resnet9"] = now = replace(
        now,
        network="resnet9",
        norm_start="one",
        logit_scale=1 / 8,
        batch=512,
        epochs=24,
        lr=((0, 0), (5, 0.4), (24, 0)),
    )
    rungs["gpu-preprocessing"] = now = replace(
        now, pipeline="device", part_batch=False, pool_first=True, epochs=25, lr=peak(25, 0.4)
    )
    rungs["label-smoothing"] = now = replace(now, label_smoothing=0.2, epochs=23, lr=peak(23, 0.4))
    rungs["celu"] = now = replace(now, activation="celu", celu=0.075, epochs=20, lr=peak(20, 0.4))
    rungs["ghost-bn"] = now = replace(now, ghosts=16, epochs=18, lr=peak(18, 0.6))
    rungs["frozen-bn-scale"] = now = replace(
        now, norm_scale=False, celu=0.3, logit_scale=1 / 16, bias_lr=64, epochs=17, lr=peak(17, 0.6)
    )
    rungs["whitening"] = now = replace(now, whiten=3, cutout=5, epochs=14, lr=peak(14, 1.0))
    rungs["ema"] = now = replace(now, ema=0.99, epochs=13, lr=((0, 0), (2.6, 1.0), (11, 0.1), (13, 0.1)))
    rungs["tta"] = now = replace(now, views=2, cutout=0, epochs=10, lr=((0, 0), (2, 1.0), (8, 0.1), (10, 0.1)))
    # The next rungs are records since 2024; the last two rungs are our own.
    rungs["airbench94"] = now = replace(
        now, network="narrow", activation="gelu", norm_momentum=0.4, ghosts=1, logit_scale=1 / 256,
        muon=0.6, momentum=0.85, bias_lr=440, head_lr=5600, weight_decay=1 / 60, lr=((0, 0.24), (9, 0)),
        batch=2000, epochs=9, whiten=2, whiten_images=5000, whiten_epochs=1, ema=0, pad=2, alternate=True,
        views=6, doubtful=0.25, channels_last=True,
    )  # fmt: skip
    rungs["batch-1536"] = now = replace(
        now, batch=1536, label_smoothing=0.09, lr=falling(9), muon=0.655, momentum=0.825, bias_lr=430,
        head_lr=4060, weight_decay=1 / 128, whiten_images=960,
    )  # fmt: skip
    rungs["silu"] = now = replace(now, activation="silu")
    rungs["jitter"] = now = replace(now, brightness=0.14, contrast=0.13)
    rungs["small-images"] = now = replace(now, edges=(20,) * 3 + (24,) * 3 + (32,) * 4, epochs=10, lr=falling(10))
    rungs["speedrun"] = replace(
        now, edges=(20,) * 3 + (24,) * 3 + (32,) * 6, epochs=12, lr=falling(12), leave_out=0.25, leave_out_from=4
    )
    return rungs


RECIPES = ladder()
