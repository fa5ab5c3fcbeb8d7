"""Task files for SkyPilot and Kubernetes that run one benchmark on many kinds of cards, each with a cap on its cost."""

import json
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from textwrap import indent

import gpubench
from gpubench.errors import UserError

ENGINES = ("skypilot", "k8s")
WHEEL = f"gpubench_train-{gpubench.__version__}-py3-none-any.whl"
STACK = ("torch", "torchvision", "fastai")
"""What every card gets in the version that is installed here, so that rows are alike."""
PYTHON = "3.12"
PORT = 29400
BOOT_MINUTES = 5
"""Reckoned with, and bounded by nothing but the whole: SkyPilot's own set-up, or pulling the image."""
SETUP_MINUTES = 15
IDLE_MINUTES = 10
"""How long a machine of SkyPilot stays for its rows to be copied."""
LEAST_RUN_MINUTES = 5
DAY_SECONDS = 86_400

LABELS = {
    "A100": ("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"),
    "A100-80GB": ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"),
    "B200": ("NVIDIA-B200",),
    "H100": ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H100-NVL"),
    "H200": ("NVIDIA-H200",),
    "L4": ("NVIDIA-L4",),
    "L40S": ("NVIDIA-L40S",),
    "RTX3090": ("NVIDIA-GeForce-RTX-3090",),
    "RTX4090": ("NVIDIA-GeForce-RTX-4090",),
    "RTX5090": ("NVIDIA-GeForce-RTX-5090",),
    "T4": ("Tesla-T4",),
}
"""Values of the node label nvidia.com/gpu.product by SkyPilot's name: the driver's names, with dashes for blanks.

Source: manifests on GitHub that select nodes by them, November 2026.
"""


@dataclass(frozen=True)
class Fleet:
    """One benchmark on several kinds of cards.

    Args:
        engine: one of ENGINES.
        cards: SkyPilot's names of accelerators; for k8s also values of the label nvidia.com/gpu.product.
        run_options: the words after `gpubench run`.
        gpus, nodes: cards of a machine, and machines, for each kind.
        max_cost: dollars that each kind of card may cost.
        max_hourly: dollars an hour that one machine may cost.

    Raises UserError where a name or option cannot stand in a file, or where the money buys no run.
    """

    engine: str
    cards: tuple[str, ...]
    run_options: tuple[str, ...]
    gpus: int
    nodes: int
    max_cost: float
    max_hourly: float

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UserError(f"--engine {self.engine}: there is {' and '.join(ENGINES)}")
        for card in self.cards:
            if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,38}[A-Za-z0-9])?", card):
                raise UserError(
                    f"--cards {card}: a name has up to 40 letters, digits, dots and dashes, as H100 or L40S"
                )
        names = [name_of(card) for card in self.cards]
        if not names or len(set(names)) < len(names):
            raise UserError("--cards: name one card or several, each once, joined by commas")
        for word in self.run_options:
            if not word.isprintable():
                raise UserError(f"{word!r}: an option with a character that cannot be printed stands in no file")
        if not (0 < self.max_cost < math.inf and 0 < self.max_hourly < math.inf):
            raise UserError("--max-cost and --max-hourly: give dollars above 0")
        if self.run_minutes < LEAST_RUN_MINUTES:
            spare = BOOT_MINUTES + SETUP_MINUTES + self.idle_minutes
            raise UserError(
                f"--max-cost {self.max_cost:g} buys {self.minutes} minutes at --max-hourly {self.max_hourly:g} for each"
                f" of {self.nodes} machine(s), and {spare + LEAST_RUN_MINUTES} are needed: {spare} of them to start and"
                " to come home"
            )

    @property
    def minutes(self) -> int:
        """How long the machines of one kind may live."""
        return int(60 * self.max_cost / (self.max_hourly * self.nodes))

    @property
    def idle_minutes(self) -> int:
        return IDLE_MINUTES if self.engine == "skypilot" else 0

    @property
    def run_minutes(self) -> int:
        """What is left of `minutes` for `gpubench run`."""
        return self.minutes - BOOT_MINUTES - SETUP_MINUTES - self.idle_minutes


def name_of(card: str) -> str:
    """The card as files and machines are called after it: h100, rtx4090."""
    return card.lower().replace(".", "-")


def write(fleet: Fleet, out: Path) -> list[str]:
    """Write the fleet's files to the folder `out`; returns what to do next, as lines. Raises UserError."""
    files = {f"{name_of(card)}.yaml": _task(fleet, card, out) for card in fleet.cards}
    if fleet.engine == "k8s":
        files |= {f"home/{name_of(card)}.yaml": _home(card) for card in fleet.cards}
    try:
        stale = sorted({path.name for path in out.glob("*.yaml")} - set(files))
        if stale:
            raise UserError(f"--out {out}: it has {', '.join(stale)} of another fleet; remove that, or choose a folder")
        for name, text in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out {out}: cannot write there ({error.strerror})") from None
    return [*(str(out / name) for name in files), *_next_steps(fleet, out)]


def _task(fleet: Fleet, card: str, out: Path) -> str:
    return _skypilot(fleet, card, out) if fleet.engine == "skypilot" else _jobset(fleet, card)


def _pins() -> str:
    """The stack for pip; without +cpu and the like, which the package index does not have."""
    return " ".join(f"{name}=={version(name).partition('+')[0]}" for name in STACK)


def _run(fleet: Fleet, out: str, leader: str) -> str:
    """The shell's line that measures; `out` and `leader` are the shell's words."""
    where = f" --rendezvous {leader}:{PORT}" if fleet.nodes > 1 else ""
    limit = f"timeout --kill-after=1m {fleet.run_minutes}m"
    return f"{limit} gpubench run {shlex.join(fleet.run_options)}{where} --out {out}"


def _skypilot(fleet: Fleet, card: str, out: Path) -> str:
    name = name_of(card)
    setup = f"""\
set -e
timeout 1m ~/.local/bin/uv venv --clear --python {PYTHON} ~/gpubench
timeout {SETUP_MINUTES - 1}m ~/.local/bin/uv pip install --python ~/gpubench/bin/python ~/{WHEEL} {_pins()}
"""
    run = f"""\
export PATH=~/gpubench/bin:$PATH
mkdir -p ~/rows
{_run(fleet, f"~/rows/{name}.csv", '"$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"')}
"""
    return f"""\
# At most ${fleet.max_cost:g}: {fleet.nodes} machine(s) of at most ${fleet.max_hourly:g} an hour for {fleet.minutes} \
minutes, {fleet.run_minutes} of them for the run.
name: gpubench-{name}
num_nodes: {fleet.nodes}
resources:
  accelerators: "{card}:{fleet.gpus}"
  max_hourly_cost: {fleet.max_hourly}
  use_spot: false
  autostop: {{idle_minutes: {IDLE_MINUTES}, down: true, wait_for: jobs}}
file_mounts:
  ~/{WHEEL}: {json.dumps(str(out / WHEEL), ensure_ascii=False)}
setup: |
{indent(setup, "  ")}\
run: |
{indent(run, "  ")}"""


def _jobset(fleet: Fleet, card: str) -> str:
    name = f"gpubench-{name_of(card)}"
    return f"""\
# At most {fleet.minutes} minutes on the card, {fleet.run_minutes} of them for the run: ${fleet.max_cost:g} if each of \
{fleet.nodes} machine(s)
# costs ${fleet.max_hourly:g} an hour. Kubernetes knows no prices.
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {name}
  labels: {{app: gpubench}}
spec:
  accessModes: [{"ReadWriteOnce" if fleet.nodes == 1 else "ReadWriteMany"}]
  resources: {{requests: {{storage: 1Gi}}}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {name}
  labels: {{app: gpubench}}
spec:
  ttlSecondsAfterFinished: {DAY_SECONDS}
  network: {{enableDNSHostnames: true}}
  replicatedJobs:
  - name: run
    replicas: 1
    template:
      spec:
        parallelism: {fleet.nodes}
        completions: {fleet.nodes}
        completionMode: Indexed
        backoffLimit: 0
        template:
          metadata:
            labels: {{app: gpubench}}
          spec:
{indent(_pod(fleet, card, name), " " * 12)}"""


def _pod(fleet: Fleet, card: str, name: str) -> str:
    """What a pod of the JobSet `name` is made of."""
    leader = f"{name}-run-0-0.{name}"
    meet = f"until getent hosts {leader}; do sleep 1; done\n" if fleet.nodes > 1 else ""
    script = f"""\
set -e
timeout {SETUP_MINUTES}m pip install --quiet /wheel/{WHEEL} {_pins()}
{meet}exec {_run(fleet, f"/rows/{name_of(card)}.csv", leader)}
"""
    script = script.replace("$", "$$")  # Kubernetes would put variables in for $(NAME)
    return f"""\
activeDeadlineSeconds: {60 * fleet.minutes}
terminationGracePeriodSeconds: 60
restartPolicy: Never
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        - {{key: nvidia.com/gpu.product, operator: In, values: {json.dumps(LABELS.get(card, (card,)))}}}
tolerations:
- {{key: nvidia.com/gpu, operator: Exists}}
containers:
- name: gpubench
  image: python:{PYTHON}
  command: [bash, -c]
  args:
  - |
{indent(script, "    ")}\
  env:
  - {{name: NVIDIA_DRIVER_CAPABILITIES, value: "compute,utility"}}
  resources:
    limits: {{nvidia.com/gpu: {fleet.gpus}}}
  volumeMounts:
  - {{name: rows, mountPath: /rows}}
  - {{name: shm, mountPath: /dev/shm}}
  - {{name: wheel, mountPath: /wheel}}
volumes:
- {{name: rows, persistentVolumeClaim: {{claimName: {name}}}}}
- {{name: shm, emptyDir: {{medium: Memory}}}}
- {{name: wheel, configMap: {{name: gpubench-wheel}}}}
"""


def _home(card: str) -> str:
    """A pod that holds the card's volume, so that `kubectl cp` can read it; it ends after an hour."""
    name = f"gpubench-{name_of(card)}"
    return f"""\
apiVersion: v1
kind: Pod
metadata:
  name: {name}-home
  labels: {{app: gpubench-home}}
spec:
  activeDeadlineSeconds: 3600
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - name: home
    image: python:{PYTHON}
    command: [sleep, infinity]
    volumeMounts:
    - {{name: rows, mountPath: /rows}}
  volumes:
  - {{name: rows, persistentVolumeClaim: {{claimName: {name}}}}}
"""


def _next_steps(fleet: Fleet, out: Path) -> Iterator[str]:
    """What to type next: wheel, launch, rows home, teardown, compare."""
    folder, names = shlex.quote(str(out)), [name_of(card) for card in fleet.cards]
    each = f"for card in {' '.join(names)}; do"
    yield f"each card may cost ${fleet.max_cost:g}, {fleet.minutes} minutes; the run has {fleet.run_minutes}. Next:"
    yield f"pip wheel --no-deps -w {folder} ."
    yield from _on_skypilot(folder, names, each) if fleet.engine == "skypilot" else _on_k8s(fleet, folder, each)
    yield "gpubench compare rows/*.csv"


def _on_skypilot(folder: str, names: Sequence[str], each: str) -> Iterator[str]:
    launch = f"sky launch -y -c gpubench-$card {folder}/$card.yaml; rsync -a gpubench-$card:rows/ rows/"
    yield f"{each} ({launch}) & done; wait"
    yield f"sky down -y {' '.join(f'gpubench-{name}' for name in names)}"


def _on_k8s(fleet: Fleet, folder: str, each: str) -> Iterator[str]:
    yield f"kubectl create configmap gpubench-wheel --from-file={folder}/{WHEEL}"
    yield f"kubectl apply -f {folder}"
    ended = "--for=jsonpath='{.status.terminalState}'"
    yield f"kubectl wait {ended} --timeout={fleet.minutes + 60}m jobset -l app=gpubench"
    yield f"kubectl apply -f {folder}/home"
    yield "kubectl wait --for=condition=Ready --timeout=10m pod -l app=gpubench-home"
    yield f"{each} kubectl cp gpubench-$card-home:/rows/$card.csv rows/$card.csv; done"
    yield f"kubectl delete --ignore-not-found -f {folder}/home -f {folder}; kubectl delete configmap gpubench-wheel"
