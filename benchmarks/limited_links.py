"""Times the all-reduces of `scaling` between network namespaces whose links have a limited rate (tc's tbf).

    sudo python benchmarks/limited_links.py --out links.csv --nodes 2,3,4,8 --rate 100mbit
    sudo python benchmarks/limited_links.py --out training.csv --nodes 2 --processes 2 --rounds 6 --train --rate 200mbit

Each machine is a namespace with `--processes` processes; all are connected to one bridge. Needs root, iproute2 and a
kernel with namespaces and tbf. `gpubench compare links.csv` then prints the fastest all-reduce by size. With `--train`
ResNet-50 trains with its gradients summed in each of the three ways, which take turns: `gpubench compare training.csv
--by all_reduce --baseline flat`.
"""

import argparse
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HUB = "gbhub"
WAYS = ("flat", "hierarchical", "hybrid")
TINY_TRAINING = {"image_size": "64", "train_images": "48", "epochs": "1", "bucket_mib": "4", "hybrid_kib": "2048"}
"""With these settings two cores train ResNet-50 in less than a minute. `hybrid` sums buckets above 2 MiB flat."""


def main() -> int:
    """Run every number of nodes in turn, and delete the namespaces; return the worst exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", default="2,3,4,8")
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--smallest", type=int, default=1 << 14)
    parser.add_argument("--largest", type=int, default=1 << 20)
    parser.add_argument("--group", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1, help="of each machine")
    parser.add_argument("--train", action="store_true", help="train ResNet-50 instead of timing single messages")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    counts = [int(count) for count in options.nodes.split(",")]
    try:
        lay(max(counts), options.rate)
        if options.train:
            session = secrets.token_hex(4)
            trainings = [(way, number) for number in range(options.rounds) for way in WAYS]
            return max(train(way, number, session, max(counts), options) for way, number in trainings)
        return max(measure(count, options) for count in counts)
    finally:
        for name in (HUB, *map(machine, range(max(counts)))):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def machine(number: int) -> str:
    """Return the name of the namespace of a machine."""
    return f"gbnode{number}"


def lay(count: int, rate: str) -> None:
    """Make a bridge and `count` namespaces, each with a limited link to the bridge."""
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
    """Time single messages between `count` machines; return the worst exit code."""
    group = options.group if count % options.group == 0 else 1
    settings = {
        "smallest": options.smallest, "largest": options.largest, "gradients": "false", "group": group,
    }  # fmt: skip
    out = options.out.with_name(f"{options.out.stem}-{count}{options.out.suffix}")
    return run_on(count, options, ["--models", "allreduce", "--repeats", "1", "--out", str(out)], settings)


def train(way: str, number: int, session: str, count: int, options: argparse.Namespace) -> int:
    """Train ResNet-50 for round `number` with one all-reduce; return the worst exit code."""
    out = options.out.with_name(f"{options.out.stem}-{way}{options.out.suffix}")
    repeats = ["--full", "--repeats", str(number + 1), "--session", session]  # the earlier rounds are in the file
    arguments = ["--models", "resnet50", "--batch", "2", *repeats, "--out", str(out)]
    return run_on(count, options, arguments, TINY_TRAINING | {"all_reduce": way})


def run_on(count: int, options: argparse.Namespace, arguments: list[str], settings: Mapping[str, object]) -> int:
    """Run the same command on each of `count` machines; return the worst exit code."""
    command = [
        sys.executable, "-m", "gpubench", "run", "--suite", "scaling", "--precision", "fp32", "--device", "cpu",
        "--nodes", str(count), "--processes", str(options.processes), "--rendezvous", f"10.78.0.1:{29400 + count}",
        *arguments, "--set", "threads=1",
    ]  # fmt: skip
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
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
