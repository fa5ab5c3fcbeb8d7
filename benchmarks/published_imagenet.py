"""Write results/2018-imagenet18.csv: published times of ResNet-50 to 93% top-5 by progressive resizing.

    python benchmarks/published_imagenet.py results/

The figures are those that authors state: of 8 V100 in train.py of cybertronai/imagenet18, of 128 V100 in fast.ai's
announcement of 10 August 2018, of 8 Titan RTX in Lambda's run of the same code.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from gpubench.rows.row import Row
from gpubench.rows.write import append

NAME = "2018-imagenet18.csv"
CODE = "github.com/cybertronai/imagenet18_old@a61ced3f train.py"


@dataclass(frozen=True)
class Run:
    """One published run to 93% top-5."""

    card: str
    memory_gib: int
    processes: int
    seconds: float
    epochs: int | None
    top5: float | None
    schedule: str
    started: str
    source: str
    reason: str


RUNS = (
    Run(
        "NVIDIA TITAN RTX", 24, 8, 2.3657 * 3600, 27, 0.93018, "titan-rtx", "2019",
        "github.com/lambdal/imagenet18@1b43a01a", "time until top-5 passed 0.93, validation included",
    ),
    Run(
        "Tesla V100-SXM2-16GB", 16, 8, 109 * 60 + 12, None, None, "one-machine", "2018", CODE,
        "time until top-5 passed 0.93 on one p3.16xlarge; epochs and final accuracy are not stated",
    ),
    Run(
        "Tesla V100-SXM2-16GB", 16, 128, 18 * 60, None, None, "sixteen-machines", "2018",
        "www.fast.ai/posts/2018-08-10-fastai-diu-imagenet.html",
        "announced as 18 minutes on 16 p3.16xlarge, about 40 dollars; 16:08 in train.py; batch sizes differ by machine"
        " count",
    ),
)  # fmt: skip

TRAIN_IMAGES = 1_281_167


def row(run: Run, number: int) -> Row:
    """One published run as a row of ours."""
    one_machine = run.processes == 8
    # Only the end is stated, so that there are no lines of epochs before it.
    table = [["epoch", "hours", "top5", "crop", "size"]]
    if run.epochs:
        table.append([run.epochs, round(run.seconds / 3600, 4), run.top5, "rectangle", 288])
    return Row(
        suite="imagenet",
        studies="stages",
        suite_version=1,
        model="resnet50",
        # An fp16 model with fp32 BatchNorm and master weights, and a fixed loss scale of 1024.
        precision="fp16-master",
        batch_size=512 if one_machine else None,
        batch_policy="author",
        params=f"goal=0.93 loss_scale=1024 phases={run.schedule} workers=8",
        processes=run.processes,
        data="imagenet",
        mode="published",
        card=run.card,
        device="cuda:0",
        card_memory_bytes=run.memory_gib * 2**30,
        session=f"imagenet18-{number}",
        trial=0,
        started=run.started,
        source=run.source,
        status="ok",
        reason=run.reason,
        seconds=round(run.seconds, 1),
        measured="measured",
        epochs=run.epochs,
        run_samples=run.epochs * TRAIN_IMAGES if run.epochs else None,
        top5=run.top5,
        table=json.dumps(table, separators=(",", ":")),
    )


def main(results: Path) -> None:
    """Write the file anew."""
    path = results / NAME
    path.unlink(missing_ok=True)
    append(path, [row(run, number) for number, run in enumerate(RUNS)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
