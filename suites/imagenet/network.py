"""The networks, SGD or LARS, a training step, and the score (top-1, top-5, loss) in validation."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torchvision.models import resnet

from gpubench import Clock, Trial
from gpubench.training import Lars, Stepper, distributed, imagenet_network, layout, mode_of, quiet, send_gradients

Batch = tuple[torch.Tensor, torch.Tensor]
"""Images, uint8 (N, 3, H, W), and labels, on the device."""
State = dict[str, Any]
"""What a checkpoint saves."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MOMENTUM = 0.9


def network_of(name: str, classes: int) -> torch.nn.Module:
    """Return AlexNet with BatchNorm, or torchvision's ResNet with a zero scale in the last BatchNorm of each block.

    AlexNet needs images of at least 31 x 31 pixels. The last layer begins with normal weights of standard deviation
    0.01. `small` is for a CPU and small images: ResNet-18's first layers, a block of 64 channels and one of 128.
    """
    if name != "small":
        return imagenet_network(name, classes, zero_last_norms=True)
    blocks = [1, 1, 1, 1]
    network: torch.nn.Module = resnet.ResNet(resnet.BasicBlock, blocks, classes, zero_init_residual=True)
    network.layer3, network.layer4 = torch.nn.Identity(), torch.nn.Identity()
    network.fc = torch.nn.Linear(128, classes)
    torch.nn.init.normal_(network.fc.weight, std=0.01)
    return network


def optimizer_of(name: str, model: torch.nn.Module, weight_decay: float) -> torch.optim.Optimizer:
    """Return SGD with momentum, or LARS with norms in fp32. Neither decays BatchNorm and biases."""
    if name == "lars":
        return Lars(model.parameters(), lr=0.0, momentum=MOMENTUM, decay=weight_decay)
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim <= 1]  # BatchNorm and biases: arXiv 1807.11205
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    # A GradScaler waits for the device in every step of an optimizer that is not fused.
    return torch.optim.SGD(groups, lr=0.0, momentum=MOMENTUM, fused=decayed[0].is_cuda)


class Network:
    """Model, optimizer, loss scale and precision of a run, and its training step."""

    def __init__(self, trial: Trial, clock: Clock, classes: int) -> None:
        params = trial.params
        self.device = torch.device(trial.case.device)
        self.layout = layout(trial.case)
        self.clock = clock
        self.mode = mode_of(trial.case.precision, trial.case.device)
        model = network_of(trial.case.model, classes)
        self.model = self.mode.prepare(model.to(self.device).to(memory_format=self.layout))
        self.optimizer = optimizer_of(params.optimizer, self.model, params.weight_decay)
        self.stepper = Stepper(self.mode, self.model, self.optimizer, clock, loss_scale=params.loss_scale)
        # DDP need not broadcast BatchNorm's statistics in every step: `agree` does it before validation.
        self.shared = distributed(self.model, trial, broadcast_buffers=False, bucket_cap_mb=params.bucket_mib)
        sent = torch.float16 if params.gradients_as == "fp16" else torch.float32
        send_gradients(self.shared, trial, params.all_reduce, params.group, sent, params.hybrid_kib << 10)
        self.compiled: Callable[[torch.Tensor], torch.Tensor] = (
            torch.compile(self.shared) if params.compile else self.shared
        )
        self.processes = trial.case.processes
        self.mean = torch.tensor(MEAN, device=self.device).view(1, 3, 1, 1) * 255
        self.std = torch.tensor(STD, device=self.device).view(1, 3, 1, 1) * 255

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input of the model for uint8 images (N, 3, H, W) on the device."""
        x = x.float().sub_(self.mean).div_(self.std)
        return self.mode.input(x.contiguous(memory_format=self.layout))

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next step."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def step(self, parts: Iterable[Batch], weights: Sequence[float] = (1.0,)) -> torch.Tensor:
        """Take one step over `parts`; return the sum of their losses times their weights, a scalar.

        Only the last part's backward pass sends gradients: the sum over all parts.
        """
        losses: list[torch.Tensor] = []
        for (x, y), weight in zip(parts, weights, strict=False):
            with quiet(self.shared, self.clock.together and len(losses) == len(weights) - 1):
                with self.mode.autocast():
                    loss = cross_entropy(self.compiled(self.prepare(x)).float(), y)
                loss = loss * weight if weight != 1 else loss
                self.stepper.backward(loss)
            losses.append(loss.detach())
        self.stepper.step()
        return torch.stack(losses).sum() if len(losses) > 1 else losses[0]

    def agree(self) -> None:
        """Copy BatchNorm's statistics of process 0 to all processes, whose images differ."""
        if self.processes > 1:
            for buffer in self.model.buffers():
                dist.broadcast(buffer, 0)

    def state(self) -> State:
        """Return the state for a checkpoint."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "stepper": self.stepper.state(),
        }

    def restore(self, state: State) -> None:
        """Restore a state that `state` returned."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.stepper.restore(state["stepper"])


@dataclass(frozen=True)
class Score:
    """Fractions of right predictions, and the mean loss, in validation."""

    top1: float = 0.0
    top5: float = 0.0
    loss: float = 0.0


def evaluate(net: Network, batches: Iterator[Batch]) -> Score:
    """Return the score on these batches of all processes; waits for the device at the end (mps: after each batch)."""
    net.agree()
    model = net.model.eval()
    sums, seen = torch.zeros(4, dtype=torch.float64, device="cpu" if net.device.type == "mps" else net.device), 0
    with torch.inference_mode():
        for x, y in batches:
            if not len(y):  # another process has this batch
                continue
            with net.mode.autocast():
                logits = model(net.prepare(x)).float()
            best = logits.topk(min(5, logits.shape[1]), dim=1).indices == y.view(-1, 1)
            loss = cross_entropy(logits, y, reduction="sum")
            sums[:3] += torch.stack([best[:, 0].sum().float(), best.sum().float(), loss]).to(sums)
            seen += len(y)
        sums[3] = seen
    if net.processes > 1:
        dist.all_reduce(sums)
    top1, top5, loss_sum, many = sums.tolist()
    return Score(top1 / many, top5 / many, loss_sum / many) if many else Score()


@contextmanager
def no_algorithm_search() -> Iterator[None]:
    """Turn off cuDNN's search for algorithms: rectangles have many shapes, and too few batches of each to repay it."""
    searching, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = searching
