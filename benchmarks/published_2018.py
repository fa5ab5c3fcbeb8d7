"""Write results/2018-four-minutes.csv: "Training ImageNet in Four Minutes", and the runs that the paper compares with.

    python benchmarks/published_2018.py results/

The abstract has its own figures and those of Akiba and others. Those of You and others are in their paper, except the
accuracy at 65,536 images per step, which is in the first paper's table. Against NCCL it states ratios and no times.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from gpubench.rows.row import Row
from gpubench.rows.write import append

JIA = "Jia and others 2018, arXiv 1807.11205; 1,024 cards for AlexNet: GTC 2019, talk S9146"
AKIBA = "Akiba and others 2017, Chainer, in the abstract of arXiv 1807.11205"
YOU = "You and others 2018, Berkeley, ImageNet Training in Minutes, ICPP; accuracies: arXiv 1807.11205"
P40, P100, KNL, XEON = "NVIDIA Tesla P40", "NVIDIA Tesla P100", "Intel Xeon Phi 7250", "Intel Xeon Platinum 8160"

TRAIN_IMAGES = 1_281_167


@dataclass(frozen=True)
class Run:
    """One published run; its batch is shared by all processes."""

    source: str
    model: str
    card: str
    processes: int
    minutes: float | None
    epochs: int | None
    batch: int | None
    accuracy: float | None
    reason: str = ""
    gain: float | None = None
    """How many times as fast as with NCCL."""


RUNS = (
    Run(JIA, "resnet50", P40, 2048, 6.6, 90, 65_536, 0.758),
    Run(JIA, "alexnet-bn", P40, 1024, 4.0, 95, 65_536, 0.587, "under 4 minutes"),
    Run(AKIBA, "resnet50", P100, 1024, 15.0, 90, 32_768, 0.749),
    Run(YOU, "resnet50", KNL, 2048, 20.0, 90, 32_768, 0.754),
    Run(YOU, "resnet50", KNL, 2048, None, None, 65_536, 0.732, "accuracy alone is stated"),
    Run(YOU, "alexnet-bn", XEON, 2048, 11.0, 100, None, None, "arXiv 1709.05011 counts 1,024 CPUs"),
    Run(JIA, "resnet50", P40, 1024, None, None, None, None, gain=11),
    Run(JIA, "alexnet-bn", P40, 1024, None, None, None, None, gain=3),
)


def row(run: Run) -> Row:
    """Return a published run as a row of gpubench."""
    own = run.source == JIA
    # No epochs if the batch is known: `compare` compares batches of runs that differ in nothing else.
    params = {"global_batch": run.batch, "optimizer": "lars" if own else None}
    params |= {} if run.batch else {"epochs": run.epochs}
    gains = [["what", "times", "baseline"], ["its own all-reduce", run.gain, "NCCL's"]]
    return Row(
        suite="imagenet",
        studies="published batch" if run.accuracy else "published",
        model=run.model,
        # Its own runs: fp16 forward and backward, fp32 master weights. It does not state the precision of the others.
        precision="fp16-master" if own else "unknown",
        batch_size=run.batch // run.processes if run.batch else None,
        batch_policy="author",
        params=" ".join(f"{name}={value}" for name, value in sorted(params.items()) if value),
        processes=run.processes,
        data="imagenet",
        mode="published",
        card=run.card,
        device="cpu" if run.card in {KNL, XEON} else "",
        backend="nccl" if own and not run.gain else "",
        session="jia-2018",
        trial=0,
        source=run.source,
        status="ok",
        reason=run.reason,
        seconds=run.minutes * 60 if run.minutes else None,
        measured="measured",
        epochs=run.epochs,
        run_samples=run.epochs * TRAIN_IMAGES if run.epochs else None,
        accuracy=run.accuracy,
        table=json.dumps(gains, separators=(",", ":")) if run.gain else "",
    )


def main(results: Path) -> None:
    """Replace the file by a new one."""
    path = results / "2018-four-minutes.csv"
    path.unlink(missing_ok=True)
    append(path, [row(run) for run in RUNS])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
