"""Write results/2018-imagenet18.csv: published times of ResNet-50 to 93% top-5 by progressive resizing.

    python benchmarks/published_imagenet.py results/

Lambda's page states every epoch of its run on 8 Titan RTX, and the time on 8 V100 that it compares with. For 8 to 128
V100, train.py of cybertronai/imagenet18 states the time and the final top-5, and fast.ai's announcement of 10 August
2018 the dollars. Their epochs are in logs that the repository does not have.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from gpubench.rows.row import Row
from gpubench.rows.write import append

NAME = "2018-imagenet18.csv"
LAMBDA = "lambdalabs.com/blog/reproduce-fast-ai-diux-imagenet18-with-titan-rtx-dawn-bench"
ENTRY = "fast.ai, DAWNBench entry of April 2018, as lambdalabs.com names it"
CODE = "github.com/cybertronai/imagenet18@218ef7e6 train.py"
ANNOUNCED = "www.fast.ai/posts/2018-08-10-fastai-diu-imagenet.html"

TRAIN_IMAGES = 1_281_167
PIXELS = {13: 128, 25: 224, 27: 288}
"""The last epoch of each image size, from the schedule; the last one is validated on rectangles."""
EPOCHS = (
    (0.0539, 7.2800, 19.1979), (0.0921, 18.3619, 39.6699), (0.1306, 26.1700, 50.2779), (0.1691, 29.9260, 54.5460),
    (0.2078, 32.3339, 58.0260), (0.2465, 27.2560, 50.7680), (0.2852, 30.0799, 54.3160), (0.3240, 39.1959, 65.4260),
    (0.3627, 42.8860, 69.2040), (0.4014, 45.1940, 70.9100), (0.4402, 49.3839, 74.9639), (0.4788, 54.9459, 79.5660),
    (0.5174, 58.5820, 81.8980), (0.6433, 57.3959, 81.5960), (0.7569, 53.0480, 77.7799), (0.8703, 58.9599, 82.7979),
    (0.9845, 60.4039, 83.8259), (1.0982, 62.3779, 84.8720), (1.2124, 64.9540, 86.6080), (1.3258, 65.9520, 87.2919),
    (1.4390, 68.3700, 88.7060), (1.5529, 71.4420, 90.4820), (1.6673, 72.0479, 90.6679), (1.7826, 72.8679, 91.1559),
    (1.8957, 73.5739, 91.4960), (2.1455, 75.8519, 92.9879), (2.3657, 75.9179, 93.0179),
)  # fmt: skip
"""Lambda's run: hours since the beginning, top-1 and top-5 in per cent."""


@dataclass(frozen=True)
class Run:
    """One published run to 93% top-5."""

    card: str
    memory_gib: int
    processes: int
    seconds: float
    schedule: str
    top5: float | None
    source: str
    session: str
    started: str
    studies: str = "stages"
    reason: str = ""
    dollars: float | None = None


V100 = ("Tesla V100-SXM2-16GB", 16)
CLUSTER = "fastai-diux-2018"
UNSAID = "the number of epochs is not stated"
RUNS = (
    Run("NVIDIA TITAN RTX", 24, 8, 2.3657 * 3600, "titan-rtx", 0.930179, LAMBDA, "lambda-2019", "2019",
        "stages published", "validation included"),
    Run(*V100, 8, 3.27 * 3600, "dawnbench-2018-04", None, ENTRY, "lambda-2019", "2018-04", "published",
        "the entry that won DAWNBench's cost of ImageNet training in April 2018"),
    Run(*V100, 8, 109 * 60 + 12, "one-machine", 0.9300, CODE, CLUSTER, "2018", reason=UNSAID),
    Run(*V100, 16, 54 * 60, "two-machines", 0.93364, CODE, CLUSTER, "2018", reason=UNSAID),
    Run(*V100, 32, 29 * 60 + 44, "four-machines", 0.9305, CODE, CLUSTER, "2018", reason=UNSAID),
    Run(*V100, 64, 19 * 60 + 4, "eight-machines", 0.9300, CODE, CLUSTER, "2018", reason=UNSAID),
    Run(*V100, 128, 18 * 60, "sixteen-machines", None, ANNOUNCED, CLUSTER, "2018", dollars=40,
        reason="as announced; train.py says 16:08 to 93.04%, after a first run that warmed the disks"),
)  # fmt: skip


def epoch_table() -> str:
    """Return every epoch of Lambda's run as the JSON in the column `table` of the suite's own rows."""
    lines: list[list[str | float]] = []
    for number, (hours, top1, top5) in enumerate(EPOCHS, start=1):
        pixels = next(size for last, size in PIXELS.items() if number <= last)
        crop = "rectangle" if pixels == 288 else "square"
        lines.append([number, hours, round(top1 / 100, 6), round(top5 / 100, 6), crop, pixels])
    return json.dumps([["epoch", "hours", "top1", "top5", "crop", "size"], *lines], separators=(",", ":"))


def row(run: Run) -> Row:
    """Return a published run as a row of gpubench."""
    told = run.source == LAMBDA
    return Row(
        suite="imagenet",
        studies=run.studies,
        suite_version=1,
        model="resnet50",
        # An fp16 model with fp32 BatchNorm and master weights, and a fixed loss scale of 1024.
        precision="fp16-master",
        # One machine's first phase; the batches of more machines are smaller, and others in each phase.
        batch_size=512 if run.schedule in {"titan-rtx", "one-machine"} else None,
        batch_policy="author",
        params=f"goal=0.93 loss_scale=1024 phases={run.schedule} workers=8",
        processes=run.processes,
        nodes=run.processes // 8,
        data="imagenet",
        mode="published",
        card=run.card,
        device="cuda:0",
        card_memory_bytes=run.memory_gib * 2**30,
        session=run.session,
        trial=0,
        started=run.started,
        source=run.source,
        status="ok",
        reason=run.reason,
        seconds=round(run.seconds, 1),
        measured="measured",
        dollars=run.dollars,
        epochs=len(EPOCHS) if told else None,
        run_samples=len(EPOCHS) * TRAIN_IMAGES if told else None,
        accuracy=round(EPOCHS[-1][1] / 100, 6) if told else None,
        top5=run.top5,
        table=epoch_table() if told else "",
    )


def main(results: Path) -> None:
    """Replace the file by a new one."""
    path = results / NAME
    path.unlink(missing_ok=True)
    append(path, [row(run) for run in RUNS])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
