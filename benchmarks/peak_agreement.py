"""Compares `gpubench peak` with an independent timing, in interleaved pairs of new processes.

    python benchmarks/peak_agreement.py --device cpu --precision fp32 --pairs 6

The independent side is `torch.utils.benchmark` with large matrix products and a copy, without any code of gpubench. The
order alternates from pair to pair, so that a drift of the machine affects both alike. Prints a line per pair and the
medians of gpubench / independent. The exit code is 1 if a median differs from 1 by more than 10%.
"""

import argparse
import json
import subprocess
import sys
from statistics import median

from gpubench.hardware.environment import devices_of
from gpubench.runner import measured_peaks
from gpubench.runner.devices import choose_devices
from gpubench.runner.measured_peaks import SOAK_SECONDS
from gpubench.runner.process import describe

LIMIT = 0.1
INDEPENDENT = """
import json, sys, torch
from torch.utils.benchmark import Timer
device, dtype = sys.argv[1], getattr(torch, sys.argv[2])
if sys.argv[3] == "tf32":
    torch.set_float32_matmul_precision("high")
threads = int(sys.argv[4]) or torch.get_num_threads()  # the timer's own default is 1
sides = (512, 1024, 2048, 4096) if device == "cpu" else (2048, 4096, 8192, 16384)
def seconds(statement, **names):
    return Timer(statement, globals=names, num_threads=threads).blocked_autorange(min_run_time=0.5).median
def rate(side):
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / seconds("a @ b", a=a, b=b)
rate(512)  # warm
source = torch.randn(2**26 if device == "cpu" else 2**28, device=device)
moved = 2 * source.nbytes / seconds("b.copy_(a)", a=source, b=torch.empty_like(source))
print(json.dumps([max(map(rate, sides)), moved]))
"""
DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def independent(arguments: argparse.Namespace) -> tuple[float, float]:
    """Return FLOP/s and bytes per second, measured by torch's benchmark timer."""
    values = [arguments.device, DTYPES[arguments.precision], arguments.precision, str(arguments.threads)]
    done = subprocess.run([sys.executable, "-c", INDEPENDENT, *values], capture_output=True, text=True, check=True)
    flops, moved = json.loads(done.stdout.splitlines()[-1])
    return flops, moved


def main() -> int:
    """Run the pairs and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32", choices=DTYPES)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=6)
    arguments = parser.parse_args()
    facts = describe()
    device = choose_devices(arguments.device, devices_of(facts))[0]
    products, copies = [], []
    for pair in range(arguments.pairs):
        found: dict[str, tuple[float, float]] = {}
        for side in ("ours", "theirs") if pair % 2 else ("theirs", "ours"):
            if side == "theirs":
                found[side] = independent(arguments)
            else:
                soak = measured_peaks.CPU_SOAK_SECONDS if device.kind == "cpu" else SOAK_SECONDS
                ours = measured_peaks.measure(
                    device, facts["torch"], arguments.precision, arguments.threads, soak, print
                )
                found[side] = ours.flops_per_second, ours.bytes_per_second
        products.append(found["ours"][0] / found["theirs"][0])
        copies.append(found["ours"][1] / found["theirs"][1])
        ours_text, theirs_text = (
            f"{f / 1e9:.1f} GFLOP/s {b / 1e9:.2f} GB/s" for f, b in (found["ours"], found["theirs"])
        )
        print(f"pair {pair}: ours {ours_text}, independent {theirs_text}", flush=True)
    for name, ratios in (("matrix products", products), ("copy", copies)):
        print(f"{name}: median ratio {median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")
    return int(any(abs(median(ratios) - 1) > LIMIT for ratios in (products, copies)))


if __name__ == "__main__":
    sys.exit(main())
