"""ImageNet with images that grow from 128 to 288 pixels.

After the DAWNBench entry of fast.ai and DIUx (cybertronai/imagenet18, 2018). It trained ResNet-50 to 93% top-5 in
18 minutes on 128 V100. Lambda ran it on 8 Titan RTX in 2.37 hours (lambdal/imagenet18).

Timed: all epochs, training, validation and input pipeline, and the checkpoint after each. Not timed: imports, building
the model, listing the images, making resized copies (`gpubench data prepare imagenet`).
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench import Param, ParamValue, Suite, UserError
from gpubench.data import crops, datasets, images
from gpubench.data.images import Made, Spec
from gpubench.data.schedules import Phase, Schedule, read, schedule_of
from gpubench.training import Shard, shards

if TYPE_CHECKING:  # `gpubench list` reads this file without torch
    import PIL.Image
    import torch
    from numpy.typing import NDArray

    from gpubench import Case, Clock, Trial
    from gpubench.training import Mode

    Decoder = Callable[[bytes], PIL.Image.Image]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MOMENTUM = 0.9
SYNTHETIC_CLASSES, SYNTHETIC_TRAIN, SYNTHETIC_VALID = images.IMAGENET
SEARCHED = ("max", "fastest")
"""Batch policies under which a step that is cut to the images there are would look like one that fits."""
SYNTHETIC_SHAPES = ((500, 375), (375, 500), (500, 333), (500, 500))
"""Sizes that photographs often have; made-up ones have them in turn."""
CPU_PIXELS = 2**21
"""Most pixels in a step on a CPU: ResNet-50's activations of so many take about 4 GB."""
MOST_WORKERS = 32
"""Loader processes of a training process, unless somebody asks for more."""
MANY_NAMED = 5
"""Most files that a row names."""


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """One run of the schedule; returns top-1 (`accuracy`) and `top5` as fractions, and the loss, in validation."""
    from torch.nn.functional import cross_entropy

    from gpubench.training import quiet

    params = trial.params
    schedule = schedule_of(params.phases)
    source = Synthetic(trial) if trial.synthetic else Files(trial)
    net = Network(trial, clock, len(source.classes))
    events = Events(trial)
    checkpoint = Checkpoint(trial)
    lines: list[dict[str, str | int | float]] = checkpoint.resume(net, clock, source)

    def step(batch: tuple[torch.Tensor, torch.Tensor], weight: float = 1.0) -> torch.Tensor:
        x, y = batch
        with quiet(net.shared, clock.together):
            with net.mode.autocast():
                loss = cross_entropy(net.compiled(net.prepare(x)).float(), y)
            net.stepper.backward(loss * weight if weight != 1 else loss)
        net.stepper.step()
        net.average()
        return loss.detach()

    score = Score()
    for epoch in clock.epochs(schedule.epochs, stages=[phase.first for phase in schedule.phases]):
        checkpoint.save(epoch, net, clock, source, lines)
        phase = schedule.phase(epoch)
        batch_size = schedule.batch(phase, trial.batch_size)
        training = source.train(epoch, phase, batch_size)
        if trial.case.batch_policy in SEARCHED and training.images_per_step < batch_size * trial.case.processes:
            raise UserError(f"a step of {batch_size} images a process is more than the tree has")
        net.model.train()
        losses = []
        for number, batch in enumerate(clock.steps(training, phase="train", samples=training.samples)):
            net.set_lr(schedule.lr(epoch + number / len(training), training.images_per_step))
            weight = training.weights[number]
            losses.append(step(batch, weight) * weight)
            checkpoint.heartbeat(clock)
        began = time.perf_counter()
        validation = source.valid(phase, batch_size, rectangles=phase.rect_val)
        with no_race() if phase.rect_val else nullcontext():
            score = evaluate(net, clock.steps(validation, phase="valid", samples=validation.samples))
        source.gather()
        source.refuse_bad()
        crop = "rectangle" if phase.rect_val else "square"
        loss = mean_loss(losses, trial)
        lines.append(line(epoch, clock.elapsed / 3600, score, crop, phase, loss))
        events.write(lines[-1], seconds=time.perf_counter() - began, samples=training.samples * (epoch + 1))

    reached = first_reached(lines, trial)
    if reached:
        clock.remarks.append(f"top-5 {trial.params.goal:g} after epoch {reached['epoch']}, {reached['hours']:.4f} h")
    if clock.complete:
        clock.table += lines
        if phase.rect_val:
            square = evaluate(net, iter(source.valid(phase, batch_size, rectangles=False)))
            clock.table.append(line(epoch, clock.elapsed / 3600, square, "square", phase, loss))
    else:
        clock.table += phase_lines(schedule, clock, trial)
    clock.remarks += source.remarks()
    net.model.train()
    for batch in clock.resident():
        step(batch)
    events.close()
    if not clock.complete:
        return {}
    checkpoint.remove()
    quality = {"accuracy": score.top1, "top5": score.top5, "loss": score.loss}
    return {**quality, "success_rate": 1.0} if reached else quality


# The model


class Network:
    """Model, optimizer, precision and the average of weights: everything that a step changes."""

    def __init__(self, trial: Trial, clock: Clock, classes: int) -> None:
        import torch
        from torch.optim.swa_utils import get_ema_multi_avg_fn
        from torchvision.models import resnet

        from gpubench.training import Stepper, distributed, layout, mode_of

        params = trial.params
        self.device = torch.device(trial.case.device)
        self.layout = layout(trial.case)
        self.mode: Mode = mode_of(trial.case.precision, trial.case.device)
        # Adaptive pooling takes any image size; the last BatchNorm of each block begins at zero.
        model = getattr(resnet, trial.case.model)(num_classes=classes, zero_init_residual=True)
        self.model = self.mode.prepare(model.to(self.device).to(memory_format=self.layout))
        self.optimizer = torch.optim.SGD(
            parameter_groups(self.model, params.weight_decay),
            lr=0.0,
            momentum=MOMENTUM,
            fused=self.device.type == "cuda",  # the others have a GradScaler wait for the device in every step
        )
        self.stepper = Stepper(self.mode, self.model, self.optimizer, clock, loss_scale=params.loss_scale)
        # Every step would broadcast BatchNorm's statistics; `agree` does before they are used.
        self.shared = distributed(self.model, trial, broadcast_buffers=False)
        self.compiled: Any = torch.compile(self.shared) if params.compile else self.shared
        self.processes = trial.case.processes
        self.averaged: Any = None
        if params.ema:
            self.averaged, self.begun = copy.deepcopy(self.model), False
            self.follow: Any = get_ema_multi_avg_fn(params.ema)
            # Weights and statistics, but not BatchNorm's counts of steps: those of one list are one operation.
            self.slow, self.fast = (
                [tensor.detach() for tensor in model.state_dict().values() if tensor.is_floating_point()]
                for model in (self.averaged, self.model)
            )
        self.mean = torch.tensor(MEAN, device=self.device).view(1, 3, 1, 1) * 255
        self.std = torch.tensor(STD, device=self.device).view(1, 3, 1, 1) * 255

    @property
    def judged(self) -> torch.nn.Module:
        """The model that validation looks at."""
        model: torch.nn.Module = self.averaged if self.averaged is not None else self.model
        return model

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        """uint8 images (N, 3, H, W) on the device to what the model takes."""
        x = x.float().sub_(self.mean).div_(self.std)
        return self.mode.input(x.contiguous(memory_format=self.layout))

    def set_lr(self, lr: float) -> None:
        """The learning rate of the next step."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def average(self) -> None:
        """Take the weights of this step into their exponential average, where one is wanted."""
        if self.averaged is None:
            return
        if self.begun:
            self.follow(self.slow, self.fast, None)
        else:
            self.averaged.load_state_dict(self.model.state_dict())
            self.begun = True

    def agree(self) -> None:
        """BatchNorm's statistics are those of process 0 everywhere: each has seen other images."""
        if self.processes > 1:
            import torch.distributed as dist

            for buffer in self.judged.buffers():
                dist.broadcast(buffer, 0)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        averaged = self.averaged.state_dict() if self.averaged is not None else None
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "stepper": self.stepper.state(),
            "averaged": averaged,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.stepper.restore(state["stepper"])
        if self.averaged is not None:
            self.averaged.load_state_dict(state["averaged"])
            self.begun = True


def parameter_groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """No weight decay on BatchNorm's weights and on biases (Jia et al., arXiv 1807.11205); they have one dimension."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    free = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]


# Validation


@dataclass(frozen=True)
class Score:
    """Fractions right, and the mean loss, of a validation."""

    top1: float = 0.0
    top5: float = 0.0
    loss: float = 0.0


def evaluate(net: Network, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> Score:
    """The score on these batches of all processes; it reads the device once, at the end."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy

    net.agree()
    model = net.judged.eval()
    sums, seen = torch.zeros(4, dtype=torch.float64, device="cpu" if net.device.type == "mps" else net.device), 0
    with torch.inference_mode():
        for x, y in batches:
            if not len(y):  # another process has this batch
                continue
            logits = predict(net, model, x)
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
def no_race() -> Iterator[None]:
    """Without cuDNN's search among algorithms, which it would repeat for each of up to 38 shapes of a few batches."""
    import torch

    racing, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = racing


def mean_loss(losses: Sequence[torch.Tensor], trial: Trial) -> float:
    """The mean of these losses over all processes."""
    import torch

    from gpubench.training import weighted_mean

    return weighted_mean([float(torch.stack(list(losses)).mean())], len(losses), trial)[0]


def predict(net: Network, model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Logits, float32 (N, classes), of uint8 images (N, 3, H, W) of any size."""
    with net.mode.autocast():
        logits: torch.Tensor = model(net.prepare(x)).float()
    return logits


# Data


class Pictures:
    """What loader processes run: files to batches of uint8 images. Stateless, so one pool serves all phases."""

    def __init__(self, tree: images.Tree, copies: Mapping[int, Path], decode: Decoder | None) -> None:
        self.splits = {"train": tree.train, "valid": tree.valid}
        self.roots = {0: tree.root, **copies}
        self.decode = decode

    def __getitem__(self, spec: Spec) -> Made:
        import numpy as np
        import torch

        many = len(spec.indices)
        x = np.empty((many, spec.height, spec.width, 3), dtype=np.uint8)
        split = self.splits[spec.split]
        made = Made(torch.from_numpy(x), torch.empty(many, dtype=torch.int64))
        for place, index in enumerate(spec.indices):
            dice = None if spec.dice is None else random.Random((spec.dice << 32) + index)
            x[place], used = self.picture(spec, split, index, dice, made)
            made.y[place] = int(split.labels[used])
        return made

    def picture(
        self, spec: Spec, split: images.Split, index: int, dice: random.Random | None, made: Made
    ) -> tuple[NDArray[Any], int]:
        """The image's pixels, and its index; in training the next good file takes a bad one's place."""
        import numpy as np

        for step in range(len(split)):
            at = (index + step) % len(split)
            file = split.path(at)
            try:
                image, mode = images.open_image(self.roots[spec.copies] / file, self.decode)
            except images.BadImage as error:
                made.bad.append((file, str(error)))
                if dice is None:
                    return np.zeros((spec.height, spec.width, 3), dtype=np.uint8), at
                continue
            if mode != "RGB":
                made.odd.append((file, mode))
            size = (spec.width, spec.height)
            if dice is None:
                box = crops.centre_box(image.size, size)
                return np.asarray(image.resize(size, BILINEAR, box=box)), at
            pixels = np.asarray(image.resize(size, BILINEAR, box=crops.random_box(image.size, spec.min_scale, dice)))
            return pixels[:, ::-1] if dice.random() < 0.5 else pixels, at
        return np.zeros((spec.height, spec.width, 3), dtype=np.uint8), index  # the parent sees that all are bad


def decode_jpeg(content: bytes) -> PIL.Image.Image:
    """torchvision's decoder, which takes a third of PIL's time; raises RuntimeError for a broken file."""
    import torch
    import torchvision.io
    from PIL import Image

    encoded = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    pixels = torchvision.io.decode_jpeg(encoded, torchvision.io.ImageReadMode.RGB)
    return Image.fromarray(pixels.permute(1, 2, 0).numpy())


def find_decoder() -> tuple[Decoder | None, str]:
    """torchvision's decoder if it decodes here; else none, and a word for the row, for PIL feeds a card slower.

    Asked once, with a JPEG that is surely whole: torchvision deprecates its decoders since 0.29, and one that is gone,
    or built without libjpeg, must not look like a tree of broken files.
    """
    from PIL import Image

    whole = io.BytesIO()
    Image.new("RGB", (8, 8)).save(whole, "JPEG")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the deprecation; while it works, nobody has to act
            decode_jpeg(whole.getvalue())
    except Exception as error:  # whatever it is, PIL is there
        why = str(error).partition("\n")[0][:80]
        return None, f"torchvision decodes no JPEG ({type(error).__name__}: {why}): PIL did, which takes longer"
    return decode_jpeg, ""


BILINEAR = 2
"""PIL's number of the filter."""


class Feed:
    """One pool of loader processes for all passes over the data, and what they found wrong."""

    def __init__(self, pictures: Pictures, trial: Trial) -> None:
        import torch
        from torch.utils.data import DataLoader

        self.device = torch.device(trial.case.device)
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.specs: Sequence[Spec] = ()
        self.stopped = False
        self.many = len(pictures.splits["train"])
        self.bad: dict[str, dict[str, str]] = {"train": {}, "valid": {}}
        self.odd: dict[str, str] = {}
        dataset: Any = pictures
        collate: Any = as_it_is
        self.loader: Any = DataLoader(
            dataset,
            sampler=self,
            batch_size=None,
            collate_fn=collate,
            num_workers=workers_of(trial),
            persistent_workers=workers_of(trial) > 0,
            pin_memory=self.device.type == "cuda",
        )

    def __len__(self) -> int:
        return len(self.specs)

    def __iter__(self) -> Iterator[Spec]:
        """What the pool is to make next, for torch's loader."""
        for spec in self.specs:
            if self.stopped:
                return
            yield spec

    def run(self, specs: Sequence[Spec]) -> Iterator[tuple[Any, Any]]:
        """uint8 images (N, 3, H, W) and labels of each spec, on the device."""
        self.specs, self.stopped = specs, False
        batches = iter(self.loader)
        try:
            for spec, made in zip(specs, batches, strict=False):
                self.bad[spec.split].update(made.bad)
                if len(self.bad["train"]) == self.many:
                    raise UserError(f"nothing to train on: cannot use {named(self.bad['train'])}")
                self.odd.update(made.odd)
                x, y = self.moved(made)
                yield x.permute(0, 3, 1, 2), y
        finally:
            self.stopped = True
            for _ in batches:  # what is under way; the next pass would have to wait for it
                pass

    def moved(self, made: Made) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and labels on the device; a card copies them beside the steps that are still under way."""
        import torch

        if self.stream is None:
            return made.x.to(self.device), made.y.to(self.device)
        with torch.cuda.stream(self.stream):
            x, y = made.x.to(self.device, non_blocking=True), made.y.to(self.device, non_blocking=True)
        steps = torch.cuda.current_stream(self.device)
        steps.wait_stream(self.stream)
        for tensor in (x, y):
            tensor.record_stream(steps)  # their memory is free when the step that uses them is over
        return x, y


def workers_of(trial: Trial) -> int:
    """Loader processes of this training process: by default its share of the CPUs, less the one it runs on itself.

    No more than MOST_WORKERS: two batches of each lie ready in shared memory, of which a container has little.
    """
    from gpubench.hardware.environment import cpu_count

    if trial.params.workers >= 0:
        return int(trial.params.workers)
    return max(1, min(MOST_WORKERS, cpu_count() * trial.case.nodes // trial.case.processes - 1))


def as_it_is(made: Made) -> Made:
    """A batch is whole when it leaves a loader process."""
    return made


@dataclass(frozen=True)
class Pass:
    """One pass over training or validation images, in the batches of `specs`."""

    feed: Any
    specs: Sequence[Spec]
    samples: int
    """Of all processes."""
    images_per_step: int = 0
    """Of all processes."""
    weights: Sequence[float] = ()
    """Of the loss in each step, where processes have unequal shares of it (gpubench.training.sharding)."""

    def __len__(self) -> int:
        return len(self.specs)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.feed.run(self.specs))


class Files:
    """The user's tree of images, read by loader processes."""

    def __init__(self, trial: Trial) -> None:
        tree = images.read_tree(Path(trial.data_dir))
        params = trial.params
        self.trial, self.classes, self.tree = trial, tree.classes, tree
        sizes = copies_of(params) if params.copies else set()
        found = {size: images.copies_folder(datasets.cache_folder(), trial.case.data, size) for size in sizes}
        self.few, self.few_valid = few(len(tree.train), params.train_images), few(len(tree.valid), params.valid_images)
        decode, self.undecoded = find_decoder()
        self.feed: Any = Feed(Pictures(tree, found, decode), trial)
        rectangles = any(phase.rect_val for phase in schedule_of(params.phases).phases)
        files = [tree.root / tree.valid.path(index) for index in range(len(tree.valid))] if rectangles else []
        # A bad file has any size: it will be refused by name.
        self.sizes = [size or (1, 1) for size in images.sizes_of(files)]

    def train(self, epoch: int, phase: Phase, batch: int) -> Pass:
        """The training images in an order and by crops that depend on seed and epoch alone."""
        import torch

        trial = self.trial
        dice = torch.Generator().manual_seed((trial.seed << 16) + epoch)
        # Fewer images are spread over all classes.
        chosen = torch.randperm(len(self.tree.train), generator=torch.Generator().manual_seed(0))[: self.few]
        order = chosen[torch.randperm(self.few, generator=dice)].tolist()
        crop_seed = (trial.seed << 16) + epoch
        copies = phase.copies if trial.params.copies else 0
        mine = shares(self.few, batch, trial)
        specs = [
            Spec(
                "train",
                tuple(order[each.start : each.stop]),
                phase.size,
                phase.size,
                copies,
                phase.min_scale,
                crop_seed,
            )
            for each in mine
        ]
        return Pass(self.feed, specs, self.few, step_of(self.few, batch, trial), [each.weight for each in mine])

    def valid(self, phase: Phase, batch: int, *, rectangles: bool) -> Pass:
        """The validation images: centre squares, or rectangles of each image's own shape, batched by shape."""
        chosen = random.Random(0).sample(range(len(self.tree.valid)), self.few_valid)
        copies = phase.copies if self.trial.params.copies else 0
        shapes = [(phase.size, phase.size)] * len(chosen)
        if rectangles:
            shapes = [crops.rectangle(self.sizes[index], phase.size) for index in chosen]
        specs = [
            Spec("valid", tuple(chosen[place] for place in own(places, self.trial)), shape[0], shape[1], copies)
            for shape, places in crops.batches_by_shape(shapes, batch * self.trial.case.processes)
        ]
        random.Random(0).shuffle(specs)  # a sample of them has all shapes
        return Pass(self.feed, specs, len(chosen))

    def refuse_bad(self) -> None:
        """Raise UserError naming validation images that could not be used: a score needs them all."""
        bad = self.feed.bad["valid"]
        if bad:
            raise UserError(f"validation needs every image, and cannot use {named(bad)}; mend or remove them")

    def remarks(self) -> list[str]:
        """What decoded where it was not torchvision, and what training skipped and converted, for the row."""
        found, bad, odd = [self.undecoded] if self.undecoded else [], self.feed.bad["train"], self.feed.odd
        if bad:
            found.append(f"training skipped {named(bad)}")
        if odd:
            found.append(f"converted to RGB {named(odd)}")
        return found

    def gather(self) -> None:
        """Learn what every process found wrong. All have to call it."""
        if self.trial.case.processes == 1:
            return
        import torch.distributed as dist

        every: list[Any] = [None] * self.trial.case.processes
        dist.all_gather_object(every, self.state())
        for state in every:
            self.restore(state)

    def state(self) -> dict[str, Any]:
        """What was found wrong, for a checkpoint and the other processes."""
        return {"bad": self.feed.bad["train"], "bad_valid": self.feed.bad["valid"], "odd": self.feed.odd}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        self.feed.bad["train"].update(state["bad"])
        self.feed.bad["valid"].update(state["bad_valid"])
        self.feed.odd.update(state["odd"])


def step_of(samples: int, batch: int, trial: Trial) -> int:
    """Images in a step of all processes, where an epoch has so many."""
    world = trial.case.processes
    return min(batch, max(1, samples // world)) * world


def shares(samples: int, batch: int, trial: Trial) -> list[Shard]:
    """This process's part of each step of an epoch.

    A lone image cannot train a BatchNorm, so a last step with fewer than two for each process is left out.
    """
    world = trial.case.processes
    batch = step_of(samples, batch, trial) // world
    return shards(samples, batch, rank=trial.rank, world=world, least=2 if batch > 1 else 1)


def own(places: Sequence[int], trial: Trial) -> Sequence[int]:
    """This process's part of a validation batch of all processes; there may be none."""
    world, many = trial.case.processes, len(places)
    return places[many * trial.rank // world : many * (trial.rank + 1) // world]


def named(bad: Mapping[str, str]) -> str:
    """`3 images: a.jpg (truncated), ...`."""
    first = ", ".join(f"{images.shown(file)} ({why})" for file, why in sorted(bad.items())[:MANY_NAMED])
    return f"{len(bad)} image{'s' * (len(bad) > 1)}: {first}{', ...' * (len(bad) > MANY_NAMED)}"


def few(there: int, wanted: int) -> int:
    """As many images as wanted, 0 being all."""
    return min(wanted or there, there)


class Synthetic:
    """Made-up images, one batch of each shape that stays on the device: the card without an input pipeline."""

    def __init__(self, trial: Trial) -> None:
        import torch

        self.trial, self.classes = trial, range(SYNTHETIC_CLASSES)
        self.device = torch.device(trial.case.device)
        self.dice = torch.Generator().manual_seed(trial.seed)
        self.made: dict[tuple[int, int, int], tuple[Any, Any]] = {}

    def run(self, specs: Sequence[Spec]) -> Iterator[tuple[Any, Any]]:
        """The batch of each spec's shape, made once."""
        import torch

        for spec in specs:
            shape = (len(spec.indices), spec.height, spec.width)
            if shape not in self.made:
                x = torch.randint(0, 256, (*shape, 3), dtype=torch.uint8, generator=self.dice)
                y = torch.randint(0, SYNTHETIC_CLASSES, shape[:1], generator=self.dice)
                self.made[shape] = x.to(self.device).permute(0, 3, 1, 2), y.to(self.device)
            yield self.made[shape]

    def train(self, epoch: int, phase: Phase, batch: int) -> Pass:
        """As many images as ImageNet trains on."""
        many = few(SYNTHETIC_TRAIN, self.trial.params.train_images)
        mine = shares(many, batch, self.trial)
        specs = [Spec("train", tuple(range(each.start, each.stop)), phase.size, phase.size, 0) for each in mine]
        return Pass(self, specs, many, step_of(many, batch, self.trial), [each.weight for each in mine])

    def valid(self, phase: Phase, batch: int, *, rectangles: bool) -> Pass:
        """As many as it validates on."""
        many = few(SYNTHETIC_VALID, self.trial.params.valid_images)
        shapes = [(phase.size, phase.size)] * many
        if rectangles:
            around = [SYNTHETIC_SHAPES[index % len(SYNTHETIC_SHAPES)] for index in range(many)]
            shapes = [crops.rectangle(size, phase.size) for size in around]
        specs = [
            Spec("valid", tuple(own(places, self.trial)), shape[0], shape[1], 0)
            for shape, places in crops.batches_by_shape(shapes, batch * self.trial.case.processes)
        ]
        random.Random(0).shuffle(specs)
        return Pass(self, specs, many)

    def gather(self) -> None:
        """Made-up images have no faults."""

    def refuse_bad(self) -> None:
        """Made-up images are never bad."""

    def remarks(self) -> list[str]:
        """There is nothing to remark."""
        return []

    def state(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing to do."""


# What comes of it


def line(epoch: int, hours: float, score: Score, crop: str, phase: Phase, loss: float) -> dict[str, str | int | float]:
    """A line of the row's table: an epoch."""
    return {
        "epoch": epoch + 1,
        "hours": hours,
        "top1": score.top1,
        "top5": score.top5,
        "crop": crop,
        "size": phase.size,
        "train_loss": loss,
        "valid_loss": score.loss,
    }


def phase_lines(schedule: Schedule, clock: Clock, trial: Trial) -> list[dict[str, str | int | float]]:
    """Lines of a sampled run's table: a phase each, with the hours that all of its epochs would take."""
    seconds = clock.stage_seconds()
    return [
        {
            "epochs": f"{phase.first}-{phase.end}",
            "size": phase.size,
            "batch": schedule.batch(phase, trial.batch_size),
            "hours": seconds[phase.first] / 3600,
        }
        for phase in schedule.phases
        if phase.first in seconds
    ]


def first_reached(lines: Sequence[Mapping[str, Any]], trial: Trial) -> Mapping[str, Any] | None:
    """The line of the first epoch that ended at the goal or above it: a run has reached it then, wherever it ends.

    A sampled run has no goal, nor has one on made-up images, which teach nothing.
    """
    goal = trial.params.goal
    if not goal or not trial.teaches:
        return None
    return next((each for each in lines if each["top5"] >= goal), None)


class Events:
    """TensorBoard events under --tensorboard, with the tags of imagenet18's own; nothing without it."""

    def __init__(self, trial: Trial) -> None:
        self.writer: Any = None
        if not trial.tensorboard_dir or trial.rank > 0:
            return
        from torch.utils.tensorboard import SummaryWriter

        case = trial.case
        folder = Path(trial.tensorboard_dir) / f"{case.suite}-{case.model}-{case.precision}-{trial.seed}"
        self.writer = SummaryWriter(log_dir=str(folder))
        self.writer.add_scalar("first", 0.0, 0)

    def write(self, epoch: Mapping[str, Any], *, seconds: float, samples: int) -> None:
        """One epoch, after `samples` training images; its validation took `seconds`."""
        if self.writer is None:
            return
        self.writer.add_scalar("sizes/image", epoch["size"], samples)
        self.writer.add_scalar("losses/train", epoch["train_loss"], samples)
        self.writer.add_scalar("losses/test_1", 100 * epoch["top1"], samples)
        self.writer.add_scalar("losses/test_5", 100 * epoch["top5"], samples)
        self.writer.add_scalar("times/eval_sec", seconds, samples)
        self.writer.flush()

    def close(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            self.writer.close()


class Checkpoint:
    """What a killed run goes on from: model and clock after each epoch, and how long the running one has lasted."""

    def __init__(self, trial: Trial) -> None:
        case = trial.case
        params = json.dumps(dict(case.params), sort_keys=True)
        who = (case.suite_digest, case.model, case.precision, case.device, case.processes, trial.seed)
        same = (*who, case.batch_size, params, case.data)
        name = hashlib.sha256(repr(same).encode()).hexdigest()[:16]
        self.folder = Path(trial.checkpoint_dir) if trial.checkpoint_dir else None
        self.file, self.beat = Path(f"{name}.pt"), Path(f"{name}.json")
        self.first, self.written, self.trouble = 0, 0.0, False
        self.processes, self.leads = case.processes, trial.rank == 0
        if self.folder:
            self.file, self.beat = self.folder / self.file, self.folder / self.beat

    def resume(self, net: Network, clock: Clock, source: Any) -> list[dict[str, str | int | float]]:
        """Take up what an earlier process left, if anything; returns its lines of the table."""
        if not self.folder:
            return []
        left = [self.read() if self.leads else None]
        if self.processes > 1:
            import torch.distributed as dist

            dist.broadcast_object_list(left, src=0)  # other machines have no file
        if left[0] is None:
            return []
        elapsed, state = left[0]
        if state:
            net.restore(state["net"])
            if self.leads:
                source.restore(state["source"])
        clock.resume(state.get("clock", {}), elapsed)
        self.first = int(state.get("epoch", 0))
        return list(state.get("lines", []))

    def read(self) -> tuple[float, dict[str, Any]] | None:
        """Seconds that the run has lasted, and the last checkpoint if it had one; None where there is neither."""
        import torch

        if not self.beat.is_file():
            return None
        try:
            elapsed = float(json.loads(self.beat.read_text(encoding="utf-8"))["elapsed"])
            there = self.file.is_file()
            return elapsed, torch.load(self.file, map_location="cpu", weights_only=True) if there else {}
        except Exception as error:  # torch.load has many
            raise UserError(
                f"{self.folder}: the checkpoint there cannot be read ({type(error).__name__}); remove it to start anew"
            ) from None

    def save(self, epoch: int, net: Network, clock: Clock, source: Any, lines: Sequence[Mapping[str, Any]]) -> None:
        """Keep everything, before `epoch` begins; the file appears whole or not at all."""
        import torch

        if not self.folder or not self.leads or epoch <= self.first:
            return
        state = {"epoch": epoch, "net": net.state(), "source": source.state(), "clock": clock.state()}
        part = self.file.with_suffix(f".{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            torch.save({**state, "lines": [dict(each) for each in lines]}, part)
            part.replace(self.file)
        except (OSError, RuntimeError) as error:  # a full disk is both; hours of training are worth more
            part.unlink(missing_ok=True)
            if not self.trouble:
                clock.remarks.append(f"no checkpoint could be kept ({str(error).partition(chr(10))[0]})")
            self.trouble = True

    def heartbeat(self, clock: Clock) -> None:
        """Note, about once a second, how long the run has lasted, because a killed process cannot."""
        now = time.monotonic()
        if not self.folder or not self.leads or self.trouble or now - self.written < 1.0:
            return
        self.written = now
        part = self.beat.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps({"elapsed": clock.elapsed}), encoding="utf-8")
            part.replace(self.beat)

    def remove(self) -> None:
        """The run is over."""
        if self.folder and self.leads:
            self.file.unlink(missing_ok=True)
            self.beat.unlink(missing_ok=True)
            with suppress(OSError):
                self.folder.rmdir()  # others may have theirs in it


# Before anything runs


def copies_of(params: Mapping[str, ParamValue] | Any) -> set[int]:
    """Sizes of the resized copies that the schedule reads."""
    line = params["phases"] if isinstance(params, Mapping) else params.phases
    return {phase.copies for phase in schedule_of(str(line)).phases if phase.copies}


def check(params: Mapping[str, ParamValue], folder: Path, data: str) -> None:
    """Raise UserError where the copies that the schedule reads were not made."""
    if not params["copies"]:
        return
    sizes = sorted(copies_of(params))
    there = [images.copies_are_whole(images.copies_folder(datasets.cache_folder(), data, size)) for size in sizes]
    if not all(there):
        wanted = ",".join(map(str, sizes))
        raise UserError(
            f"{folder}: this schedule reads resized copies; make them once with"
            f" `gpubench data prepare imagenet --sizes {wanted} --data {folder}`, or read originals with"
            " --set copies=false"
        )


def refuse(case: Case) -> str:
    """On a CPU a card's batches would fill the memory; and 16 bits cannot hold a small step of an average."""
    if case.params["ema"] and case.precision.startswith("fp16-"):
        return "ema: weights of 16 bits are too coarse for the steps of their average; ask for fp16 or bf16"
    schedule = schedule_of(str(case.params["phases"]))
    batch = case.batch_size or 0
    pixels = max(phase.size**2 * schedule.batch(phase, batch) for phase in schedule.phases)
    most = pixels * case.processes // case.nodes  # they share a machine's memory
    if case.device != "cpu" or most <= CPU_PIXELS:
        return ""
    return f"a step of {most / 1e6:.1f} million pixels is a card's; give --batch 16 or --set phases=tiny on a CPU"


def samples_of(params: Mapping[str, ParamValue]) -> int:
    """Images in one training epoch of ImageNet; another tree is known to the trial alone."""
    return min(int(params["train_images"]) or SYNTHETIC_TRAIN, SYNTHETIC_TRAIN)


def own_batch(model: str, params: Mapping[str, ParamValue]) -> int:
    """Images in a step of the first phase, as the schedule has it."""
    return schedule_of(str(params["phases"])).phases[0].batch


SUITE = Suite(
    train=train,
    version=4,
    models=("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    default_models=("resnet50",),
    params={
        "phases": Param("titan-rtx", "schedule: titan-rtx, tiny, or a TOML file (docs/imagenet.md)", read=read),
        "copies": Param(True, "read the resized copies that the schedule names; false reads the originals"),
        "goal": Param(0.93, "top-5 that the run is to reach; 0 is none"),
        "weight_decay": Param(1e-4, "of all weights but BatchNorm's and biases"),
        "ema": Param(
            0.0, "decay of an exponential average of the weights, which then is what validation judges; 0: none"
        ),
        "workers": Param(
            -1,
            "loader processes of each training process; -1: its share of the CPUs less one, at most 32; 0: none",
            least=-1,
        ),
        "memory_format": Param(
            "auto",
            "layout of images and weights; auto is the faster one in this precision on this device",
            choices=("auto", "channels_last", "contiguous"),
        ),
        "compile": Param(False, "torch.compile the model for training"),
        "train_images": Param(0, "train on so many images only; 0 is all"),
        "valid_images": Param(0, "validate on so many images only; 0 is all"),
    },
    studies=("stages",),
    quality="top5",
    goal="goal",
    processes=True,
    unit="images",
    recipe_batch=own_batch,
    train_samples=samples_of,
    data=("imagenet",),
    check=check,
    refuse=refuse,
)
