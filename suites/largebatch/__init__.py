"""Accuracy on CIFAR-10 as the batch grows, with SGD or LARS.

It completes the suite `scaling`: adding processes is only useful if training with their larger batch still learns.

A step's batch is `global_batch` samples over all processes. Its gradient is the mean of gradients of `--batch` samples.
BatchNorm sees at most `--batch` samples however large the step is, so that only the step differs.

The learning rate warms up, then falls with the square of the share of steps that is left (You and others 2017,
arXiv 1708.03888). For `sgd` it grows in proportion to the batch (Goyal and others 2017, arXiv 1706.02677). For LARS
it grows with the batch's square root.

`lars` computes its norms in fp32 and `lars-fp16-norms` in fp16, where the square of a value below 1.7e-4 is zero.
Therefore "Training ImageNet in Four Minutes" casts to fp32 (Jia and others 2018, arXiv 1807.11205, section 3.1).
"""

from gpubench import Case, Param, Suite, imported
from gpubench.suite.trial import autocast_refusal

TRAIN_IMAGES, TEST_IMAGES = 50_000, 10_000
RATES = {"sgd": 0.1, "lars": 10.0, "lars-fp16-norms": 10.0}
"""Peak learning rates at a batch of 512, used if `lr` is 0."""


def refuse(case: Case) -> str:
    """Return why a case cannot run: no autocast in its precision, or `--batch` is above its share of a step."""
    share = int(case.params["global_batch"]) // case.processes
    too_large = f"global_batch of {case.processes} processes allows a --batch of at most {share}"
    return autocast_refusal(case.precision) or too_large * ((case.batch_size or 0) > share)


SUITE = Suite(
    train=imported(f"{__name__}.training", "train"),
    blueprint=imported(f"{__name__}.training", "blueprint"),
    version=4,
    models=("small",),
    params={
        "global_batch": Param(512, "samples of a step, over all processes", least=2),
        "optimizer": Param("lars", "SGD, or LARS with norms in fp32 or fp16", choices=tuple(RATES)),
        "lr": Param(0.0, "peak learning rate at a batch of 512; 0 is 0.1 for sgd and 10 for LARS"),
        "warmup": Param(0.2, "share of all steps in which the learning rate grows"),
        "epochs": Param(10, "epochs of the whole run", least=1),
        "width": Param(32, "channels of the first convolution", least=1),
        "train_images": Param(0, "train on only the first N images; 0 is all"),
        "valid_images": Param(0, "validate on only the first N images; 0 is all"),
    },
    studies=("batch", "scaling"),
    quality="accuracy",
    processes=True,
    refuse=refuse,
    unit="images",
    large_linears=False,
    batch="512",
    cpu_batch=256,
    train_samples=lambda params: int(params["train_images"]) or TRAIN_IMAGES,
    data=("cifar10",),
)
