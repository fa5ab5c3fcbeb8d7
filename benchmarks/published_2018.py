"""Write results/2018-four-minutes.csv: what "Training ImageNet in Four Minutes" says of its largest runs.

python benchmarks/published_2018.py results/
"""

import sys
from pathlib import Path

from gpubench.rows.row import Row
from gpubench.rows.write import append

SOURCE = "Jia and others 2018, arXiv 1807.11205 (abstract); 1,024 cards for AlexNet: GTC 2019, talk S9146"

TRAIN_IMAGES = 1_281_167


def row(model: str, cards: int, minutes: float, epochs: int, accuracy: float) -> Row:
    """One published run; its batch of 65,536 is shared by all cards."""
    return Row(
        suite="scaling",
        studies="scaling",
        model=model,
        # fp16 forward and backward, fp32 master weights.
        precision="fp16-master",
        batch_size=65_536 // cards,
        batch_policy="author",
        params=f"epochs={epochs} optimizer=lars",
        processes=cards,
        data="imagenet",
        mode="published",
        card="NVIDIA Tesla P40",
        backend="nccl",
        session="jia-2018",
        trial=0,
        source=SOURCE,
        status="ok",
        seconds=minutes * 60,
        measured="measured",
        epochs=epochs,
        run_samples=epochs * TRAIN_IMAGES,
        accuracy=accuracy,
    )


def main(results: Path) -> None:
    """Both networks."""
    path = results / "2018-four-minutes.csv"
    path.unlink(missing_ok=True)
    append(path, [row("resnet50", 2048, 6.6, 90, 0.758), row("alexnet-bn", 1024, 4.0, 95, 0.587)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
