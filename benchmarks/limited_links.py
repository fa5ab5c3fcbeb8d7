"""Time the all-reduces of `scaling` between network namespaces whose cables carry only so much (tc's tbf).

    sudo python benchmarks/limited_links.py --out links.csv --nodes 2,3,4,8 --rate 100mbit

Each machine is a namespace with one process; all hang on one bridge. Needs root, iproute2 and a kernel with
namespaces and tbf. `gpubench compare links.csv` then prints the fastest all-reduce by size.
"""

import argparse
import os
import secrets
import subprocess
import sys
from pathlib import Path

HUB = "gbhub"


def main() -> int:
    """Run every number of nodes in turn; the namespaces are gone afterwards."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", default="2,3,4,8")
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--smallest", type=int, default=1 << 14)
    parser.add_argument("--largest", type=int, default=1 << 20)
    parser.add_argument("--group", type=int, default=2)
    options = parser.parse_args()
    counts = [int(count) for count in options.nodes.split(",")]
    try:
        lay(max(counts), options.rate)
        return max(measure(count, options) for count in counts)
    finally:
        for name in (HUB, *map(machine, range(max(counts)))):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def machine(number: int) -> str:
    """Name of a namespace."""
    return f"gbnode{number}"


def lay(count: int, rate: str) -> None:
    """A bridge, `count` namespaces and a limited cable from each to it."""
    shaped = f"root tbf rate {rate} burst 64kb latency 400ms"
    commands = [f"ip netns add {HUB}", f"ip -n {HUB} link add bridge type bridge", f"ip -n {HUB} link set bridge up"]
    for number in range(count):
        name = machine(number)
        commands += [
            f"ip netns add {name}",
            f"ip link add gbe{number} netns {name} type veth peer name gbh{number} netns {HUB}",
            f"ip -n {HUB} link set gbh{number} master bridge up",
            f"ip -n {name} addr add 10.78.0.{number + 1}/24 dev gbe{number}",
            f"ip -n {name} link set gbe{number} up",
            f"ip -n {name} link set lo up",
            f"tc -n {name} qdisc add dev gbe{number} {shaped}",
            f"tc -n {HUB} qdisc add dev gbh{number} {shaped}",
        ]
    for command in commands:
        subprocess.run(command.split(), check=True)


def measure(count: int, options: argparse.Namespace) -> int:
    """The same command on each of `count` machines; returns the worst exit code."""
    group = options.group if count % options.group == 0 else 1
    out = options.out.with_name(f"{options.out.stem}-{count}{options.out.suffix}")
    command = [
        sys.executable, "-m", "gpubench", "run", "--suite", "scaling", "--models", "allreduce", "--precision", "fp32",
        "--device", "cpu", "--repeats", "1", "--nodes", str(count), "--rendezvous", f"10.78.0.1:{29400 + count}",
        "--set", "threads=1", "--set", f"smallest={options.smallest}", "--set", f"largest={options.largest}",
        "--set", "gradients=false", "--set", f"group={group}", "--out", str(out),
    ]  # fmt: skip
    secret = secrets.token_hex(16)
    running = [
        subprocess.Popen(
            ["ip", "netns", "exec", machine(number), *command],
            env={**os.environ, "GPUBENCH_SECRET": secret},
            stderr=None if number == 0 else subprocess.DEVNULL,
        )
        for number in range(count)
    ]
    return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main())
