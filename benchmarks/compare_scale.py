"""Compares seconds and memory of `gpubench compare` with those of pandas on a million rows in a thousand files.

    python benchmarks/compare_scale.py FOLDER [FILES [ROWS]]

pandas reads the same columns. Makes the files once for each version of the table, then runs each side three times in
new processes, in turn. Imports do not count.
"""

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

from gpubench.rows.row import COLUMNS, Row
from gpubench.rows.write import append

CARDS = [f"NVIDIA GeForce RTX {number}" for number in (2080, 3060, 3070, 3080, 3090, 4060, 4070, 4080, 4090, 5090)]
MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
USUAL = {
    "seconds_low": 60.0, "seconds_high": 61.0, "samples_per_second": 900.0, "train_seconds": 55.0, "valid_seconds": 4.0,
    "resident_samples_per_second": 950.0, "data_stall": 0.03, "loader_wait": 0.02, "startup_seconds": 6.0,
    "setup_seconds": 2.0, "host_reference_seconds": 0.4, "mean_power_watts": 240.0, "energy_joules": 9000.0,
    "joules_per_sample": 0.3, "mean_sm_clock_mhz": 1800.0, "min_sm_clock_mhz": 1700.0, "max_temperature_celsius": 70.0,
    "mean_utilisation": 0.9,
}  # fmt: skip
"""Approximate figures of the columns that differ from trial to trial."""


def make(folder: Path, files: int, rows: int) -> None:
    """Write files like those of real runs: five models, two precisions; some twenty columns differ in every row."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    laps = json.dumps([["train", 0, "timed", 8, 1024, 0.30421, 0.0021]] * 8, separators=(",", ":"))
    usual = Row(
        suite="resnet", suite_version=2, suite_digest="c5f7a510ca72515a" * 4, batch_size=128, batch_policy="fixed",
        params="compile=false epochs=30 image_size=224 lr=0.003 workers=4", processes=1, data="cifar100",
        mode="sampled", device="cuda:0", driver="580.1", cpu="AMD EPYC", cpu_count=16, threads=16, torch="2.15.0+cu132",
        torchvision="0.29.2", fastai="2.8.12", cuda="13.2", cudnn="92600", python="3.11.7", gpubench="0.1.0",
        status="ok", measured="projected", epochs=30, samples=8192, laps=laps, card_memory_bytes=24 << 30,
        peak_memory_bytes=9 << 30, flops_per_sample=5.5e8, bytes_per_sample=2.1e7, measured_peak_flops=6.1e13,
        energy_source="counter", throttle="power_cap 31%", foreign_load="none", os="Linux 6.8", container="docker",
    )  # fmt: skip
    for number in range(files):
        path = folder / f"{number:04}.csv"
        if path.exists():
            with path.open(encoding="utf-8") as file:
                if file.readline().strip() == ",".join(COLUMNS):
                    continue
            path.unlink()  # an older table's
        card, each = CARDS[number % len(CARDS)], []
        own = replace(usual, card=card, session=f"s{number:06}", device_hash=f"d{number % 97:06}")
        for trial in range(rows):
            model = MODELS[trial % len(MODELS)]
            precision = ("fp32", "fp16")[trial // len(MODELS) % 2]
            seconds = round((60 + 20 * (trial % 5)) * rng.gauss(1, 0.01) / (1.5 if precision == "fp16" else 1), 6)
            figures = {name: round(value * rng.gauss(1, 0.01), 6) for name, value in USUAL.items()}
            steady = f"flat: last 4 laps within {rng.random():.2%} after 6 warm-up laps, {rng.uniform(1, 3):.2f} s"
            started = f"2026-11-{number % 28 + 1:02}T{trial // 60 % 24:02}:{trial % 60:02}:{rng.randrange(60):02}+00:00"
            row = replace(own, model=model, precision=precision, trial=trial // 10, seconds=seconds, steady=steady)
            each.append(replace(row, started=started, **figures))
        append(path, each)


OURS = """
import sys, time, resource
from pathlib import Path
import pandas, scipy.special, numpy
from gpubench.show.terminal import screen
from gpubench.studies.answer import answer
start = time.perf_counter()
said = answer(sorted(Path(sys.argv[1]).glob("*.csv")))
screen(said)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(said.results))
"""
PANDAS = """
import sys, time, resource
from pathlib import Path
import pandas
from gpubench.analysis.groups import UNREAD
from gpubench.rows.row import COLUMNS
columns = [name for name in COLUMNS if name not in UNREAD]
start = time.perf_counter()
frame = pandas.concat(pandas.read_csv(p, usecols=columns) for p in sorted(Path(sys.argv[1]).glob("*.csv")))
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(frame))
"""


def main(folder: Path, files: int = 1000, rows: int = 1000, repeats: int = 3) -> None:
    """Write the files, measure both sides and print the ratios."""
    make(folder, files, rows)
    size = sum(path.stat().st_size for path in folder.glob("*.csv"))
    print(f"{files} files, {files * rows} rows of {len(COLUMNS)} columns, {size / 1e6:.0f} MB")
    seconds: dict[str, list[float]] = {"gpubench compare": [], "pandas alone": []}
    memory: dict[str, list[int]] = {"gpubench compare": [], "pandas alone": []}
    for _ in range(repeats):
        for name, script in (("gpubench compare", OURS), ("pandas alone", PANDAS)):
            done = subprocess.run(
                [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
            ).stdout.split()
            seconds[name].append(float(done[0]))
            memory[name].append(int(done[1]))
            print(f"{name}: {float(done[0]):.2f} s, {int(done[1]) / 2**20:.2f} GiB, {done[2]}", flush=True)
    ratio = median(seconds["gpubench compare"]) / median(seconds["pandas alone"])
    space = max(memory["gpubench compare"]) / max(memory["pandas alone"])
    print(f"ratio of medians {ratio:.2f} (asked: 0.6), of memory {space:.2f} (asked: 1.0)")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
