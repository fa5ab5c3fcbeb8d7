"""Measures the cost of gpubench: `--full` seconds of resnet against a plain fastai script with the same recipe.

    python benchmarks/plain_fastai.py --data DIR --rounds 8

Each round runs both, in new processes and alternating order. The plain script uses no gpubench: it trains with
`Learner.fit_one_cycle` on tensors in memory and times that call.
Prints the ratio of each round and the 95% order-statistic interval of their median.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from gpubench.analysis.stats import median_interval

PLAIN = """
import pickle, sys, time
from functools import partial
import numpy as np, torch, torch.nn.functional as F
from fastai.callback.schedule import Learner
from fastai.data.core import DataLoaders
from fastai.losses import CrossEntropyLossFlat
from fastai.metrics import accuracy
from fastai.optimizer import OptimWrapper
from torchvision.models import resnet18

root, seed, images, valid_images, batch = sys.argv[1], *map(int, sys.argv[2:])
torch.manual_seed(seed)
MEAN = torch.tensor([0.5071, 0.4866, 0.4409]).view(1, 3, 1, 1)
STD = torch.tensor([0.2673, 0.2564, 0.2762]).view(1, 3, 1, 1)

def split(name, count):
    with open(f"{root}/cifar-100-python/{name}", "rb") as file:
        data = pickle.load(file, encoding="latin1")
    x = torch.from_numpy(np.asarray(data["data"]).reshape(-1, 3, 32, 32))[:count]
    return x, torch.tensor(data["fine_labels"])[:count]

class Loader:
    device = torch.device("cpu")
    def __init__(self, x, y, train):
        self.x, self.y, self.train = x, y, train
    def __len__(self):
        return -(-len(self.x) // batch)
    def __iter__(self):
        order = torch.randperm(len(self.x)) if self.train else torch.arange(len(self.x))
        for start in range(0, len(self.x), batch):
            index = order[start : start + batch]
            x, y = self.x[index], self.y[index]
            if self.train:
                x = augment(x)
            x = (x.float().div_(255) - MEAN) / STD
            yield x.contiguous(memory_format=torch.channels_last), y

def augment(x):
    n = len(x)
    x = F.pad(x, (4, 4, 4, 4))
    rows = torch.randint(0, 9, (n, 1, 1, 1)) + torch.arange(32).view(1, 1, 32, 1)
    columns = torch.randint(0, 9, (n, 1, 1, 1)) + torch.arange(32).view(1, 1, 1, 32)
    columns = torch.where(torch.rand(n, 1, 1, 1) < 0.5, columns.flip(3), columns)
    return x[torch.arange(n).view(n, 1, 1, 1), torch.arange(3).view(1, 3, 1, 1), rows, columns]

train, valid = Loader(*split("train", images), True), Loader(*split("test", valid_images), False)
model = resnet18(num_classes=100).to(memory_format=torch.channels_last)
learn = Learner(
    DataLoaders(train, valid), model, loss_func=CrossEntropyLossFlat(), metrics=accuracy, wd=1e-2,
    opt_func=partial(OptimWrapper, opt=torch.optim.AdamW, fused=True),
)
with learn.no_bar(), learn.no_logging():
    start = time.perf_counter()
    learn.fit_one_cycle(1, 3e-3)
    print("seconds", time.perf_counter() - start)
"""


def plain_seconds(seed: int, arguments: argparse.Namespace) -> float:
    """Return the seconds of `fit_one_cycle` in the plain script."""
    sizes = [arguments.train_images, arguments.valid_images, arguments.batch]
    command = [sys.executable, "-W", "ignore", "-c", PLAIN, str(arguments.data), str(seed), *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split("seconds")[-1])


def our_seconds(seed: int, arguments: argparse.Namespace, folder: Path) -> float:
    """Return the seconds of a `--full` trial of the same recipe."""
    out = folder / f"{seed}.csv"
    command = [sys.executable, "-m", "gpubench", "run", "--suite", "resnet", "--models", "resnet18", "--full"]
    command += [
        "--precision",
        "fp32",
        "--batch",
        str(arguments.batch),
        "--seed",
        str(seed),
        "--out",
        str(out),
    ]
    command += ["--data", str(arguments.data), "--set", "epochs=1", "--set", "image_size=32"]
    command += ["--set", f"train_images={arguments.train_images}"]
    command += ["--set", f"valid_images={arguments.valid_images}"]
    subprocess.run(command, capture_output=True, text=True, check=True)
    return float(pd.read_csv(out).seconds[0])


def main() -> None:
    """Run the rounds and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--train-images", type=int, default=6_400)
    parser.add_argument("--valid-images", type=int, default=1_280)
    arguments = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.rounds):
            if seed % 2:
                ours = our_seconds(seed, arguments, Path(folder))
                plain = plain_seconds(seed, arguments)
            else:
                plain = plain_seconds(seed, arguments)
                ours = our_seconds(seed, arguments, Path(folder))
            ratios.append(ours / plain)
            print(
                f"round {seed}: gpubench {ours:.2f} s, plain {plain:.2f} s, ratio {ratios[-1]:.3f}",
                flush=True,
            )
    low, high = median_interval(ratios) or (min(ratios), max(ratios))
    print(f"gpubench/plain: 95% of the median [{low:.3f}, {high:.3f}], n={len(ratios)}")


if __name__ == "__main__":
    main()
