"""ResNet-18 to 152 on CIFAR-100 in fastai: time of a whole run.

After the article that compares an RTX 2080 Ti with a GTX 1080 Ti (S. Bhutani, 2019;
init27/RTX-2080Ti-Vs-GTX-1080Ti-CIFAR-100-Benchmarks). Its procedure is `recipe=article`: an ImageNet body that stays
frozen except for its BatchNorm, a new head, transforms on the CPU, one cycle of 30 epochs. `recipe=full`, the default,
trains every weight from random initialisation. Published, 30 epochs of ResNet-18 in fp32: 1,692 s on the RTX 2080 Ti
and 2,126 s on the GTX 1080 Ti.

Timed: all epochs of `Learner.fit_one_cycle`, validation and input pipeline included. Not timed: imports, building the
model, reading the dataset.

Read data.py first, then training.py, which has the networks and fastai's Learner.
"""

from collections.abc import Mapping

from gpubench import MEMORY_FORMAT, Case, Param, ParamValue, Suite, imported

CLASSES = 100
TRAIN_IMAGES, TEST_IMAGES = 50_000, 10_000
ARTICLE_VALID_IMAGES = 12_000
"""A fifth of train and test together."""
ARTICLE_BATCHES = {
    "resnet18": (408, 720),
    "resnet34": (248, 496),
    "resnet50": (98, 164),
    "resnet101": (64, 116),
    "resnet152": (48, 88),
}
"""The notebooks' batches, in fp32 and mixed, the same on both cards."""
CPU_PIXELS = 2**21
"""Most pixels in a step of the article's recipe on a CPU."""


def recipe_batch(model: str, params: Mapping[str, ParamValue], precision: str) -> int:
    """Return the notebooks' batch for `recipe=article`, else 0: the recipe names none."""
    if params["recipe"] != "article":
        return 0
    return ARTICLE_BATCHES[model][precision not in {"fp32", "tf32"}]


def refuse(case: Case) -> str:
    """Return why a case cannot run: the notebooks' batches would fill the memory of a CPU."""
    pixels = (case.batch_size or 0) * int(case.params["image_size"]) ** 2
    if case.device != "cpu" or case.params["recipe"] != "article" or pixels <= CPU_PIXELS:
        return ""
    return f"a step of {pixels / 1e6:.1f} million pixels is too large for a CPU: --batch 16"


def pretrained(model: str, params: Mapping[str, ParamValue]) -> str:
    """Return the name of the weights that the article's recipe starts from."""
    return f"{model}-imagenet1k-v1" if params["recipe"] == "article" else ""


def samples_of(params: Mapping[str, ParamValue]) -> int:
    """Return the number of images in a training epoch."""
    images = TRAIN_IMAGES + TEST_IMAGES - ARTICLE_VALID_IMAGES if params["recipe"] == "article" else TRAIN_IMAGES
    return min(int(params["train_images"]) or images, images)


def most_elements(model: str, params: Mapping[str, ParamValue]) -> int:
    """Return the elements per image after the first convolution: 64 channels at half the size, the most of a ResNet."""
    return 64 * (-(-int(params["image_size"]) // 2)) ** 2


SUITE = Suite(
    train=imported(f"{__name__}.training", "train"),
    blueprint=imported(f"{__name__}.training", "blueprint"),
    version=6,
    models=("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    params={
        "recipe": Param("full", "train all weights; article: as in docs/resnet.md", choices=("full", "article")),
        "epochs": Param(30, "epochs of the whole run", least=1),
        "image_size": Param(224, "pixels the 32 x 32 images are resized to", least=8),
        "lr": Param(0.0, "peak learning rate; 0: 0.003, but 0.01 for ResNet-18 in fp32 with recipe=article"),
        "pipeline": Param("device", "where images are prepared; workers: on the CPU", choices=("device", "workers")),
        "workers": Param(4, "loader processes of pipeline=workers"),
        "memory_format": MEMORY_FORMAT,
        "compile": Param(False, "torch.compile the model"),
        "train_images": Param(0, "train on only the first N images; 0 is all"),
        "valid_images": Param(0, "validate on only the first N images; 0 is all"),
    },
    presets={"recipe": {"article": {"pipeline": "workers", "loss_scale": 512}}},
    weights=pretrained,
    recipe_batch=recipe_batch,
    refuse=refuse,
    quality="accuracy",
    processes=True,
    unit="images",
    large_linears=False,
    train_samples=samples_of,
    most_elements=most_elements,
    data=("cifar100",),
    # Range of projected / full seconds in 45 pairs (benchmarks/projection.py, a shared CPU; docs/research/tested.md).
    projected_over_full=(0.895, 1.153),
)
