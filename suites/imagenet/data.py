"""The loaders of training and validation images: from the user's tree by loader processes, or made up."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from gpubench import Trial, UserError
from gpubench.data import crops, datasets, images
from gpubench.data.images import Made, Spec
from gpubench.data.schedules import Phase, schedule_of
from gpubench.hardware.environment import cpu_count
from gpubench.training import Shard, shards

from .network import Batch, State
from .pictures import Pictures, find_decoder

SYNTHETIC_CLASSES, SYNTHETIC_TRAIN, SYNTHETIC_VALID = images.IMAGENET
SYNTHETIC_SHAPES = ((500, 375), (375, 500), (500, 333), (500, 500))
"""Sizes that photographs often have; made-up ones have them in turn."""
MOST_WORKERS = 32
"""Loader processes of a training process, unless somebody asks for more."""
MANY_NAMED = 5
"""Most files that a row names."""


@dataclass(frozen=True)
class Pass:
    """One pass over images, in the batches of `specs`."""

    feed: "Feed | Synthetic"
    specs: Sequence[Spec]
    samples: int
    """Of all processes."""

    def __len__(self) -> int:
        return len(self.specs)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.feed.run(self.specs))


@dataclass(frozen=True)
class Training:
    """A pass over training images, step by step: in each, the batches whose gradients are added up."""

    batches: Pass
    images_per_step: int
    """Of all processes."""
    weights: Sequence[Sequence[float]]
    """Of the loss of each batch of each step, so that every image of all processes counts the same."""

    def __len__(self) -> int:
        return len(self.weights)

    def __iter__(self) -> Iterator[list[Batch]]:
        batches = iter(self.batches)
        for weights in self.weights:
            yield list(islice(batches, len(weights)))


def training_of(
    feed: "Feed | Synthetic", samples: int, batch: int, trial: Trial, spec: Callable[[int, int], Spec]
) -> Training:
    """This process's part of an epoch of `samples` images, at most `batch` of them at once.

    A step has `global_batch` images of all processes, or `batch` of each. A lone image cannot train a BatchNorm, so a
    last step with fewer than two for each process is left out.

    Args:
        spec: makes the spec of the images from one place of the epoch's order to another.
    """
    world = trial.case.processes
    own = min(trial.params.global_batch // world or batch, max(1, samples // world))
    steps = shards(samples, own, rank=trial.rank, world=world, least=2 if own > 1 else 1)
    parts = [cut(step, batch) for step in steps]
    specs = [spec(part.start, part.stop) for step in parts for part in step]
    return Training(Pass(feed, specs, samples), own * world, [[part.weight for part in step] for step in parts])


def cut(shard: Shard, batch: int) -> list[Shard]:
    """A shard in parts of `batch` samples and what is left; their weights add up to the shard's."""
    starts = list(range(shard.start, shard.stop, batch))
    if batch > 2 and len(starts) > 1 and shard.stop - starts[-1] == 1:
        starts[-1] -= 1  # no BatchNorm sees a lone image
    scale = shard.weight / (shard.stop - shard.start)
    return [
        Shard(start, stop, (stop - start) * scale)
        for start, stop in zip(starts, [*starts[1:], shard.stop], strict=True)
    ]


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


def workers_of(trial: Trial) -> int:
    """Loader processes of this training process: by default its share of the CPUs, less the one it runs on itself.

    No more than MOST_WORKERS: two batches of each lie ready in shared memory, of which a container has little.
    """
    if trial.params.workers >= 0:
        return int(trial.params.workers)
    return max(1, min(MOST_WORKERS, cpu_count() * trial.case.nodes // trial.case.processes - 1))


def as_it_is(made: Made) -> Made:
    """A batch is whole when it leaves a loader process."""
    return made


class Feed:
    """One pool of loader processes for all passes over the data, and the bad images they reported."""

    def __init__(self, pictures: Pictures, trial: Trial) -> None:
        self.device = torch.device(trial.case.device)
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.specs: Sequence[Spec] = ()
        self.stopped = False
        self.many = len(pictures.splits["train"])
        self.bad: dict[str, dict[str, str]] = {"train": {}, "valid": {}}
        self.odd: dict[str, str] = {}
        collate: Callable[..., Made] = as_it_is
        self.loader = DataLoader(
            pictures,
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
        """Yield the next specs to torch's loader."""
        for spec in self.specs:
            if self.stopped:
                return
            yield spec

    def run(self, specs: Sequence[Spec]) -> Iterator[Batch]:
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

    def moved(self, made: Made) -> Batch:
        """Images and labels on the device; a card copies them beside the steps that are still under way."""
        if self.stream is None:
            return made.x.to(self.device), made.y.to(self.device)
        with torch.cuda.stream(self.stream):
            x, y = made.x.to(self.device, non_blocking=True), made.y.to(self.device, non_blocking=True)
        steps = torch.cuda.current_stream(self.device)
        steps.wait_stream(self.stream)
        for tensor in (x, y):
            tensor.record_stream(steps)  # their memory is free when the step that uses them is over
        return x, y


class Files:
    """The user's tree of images, read by loader processes."""

    def __init__(self, trial: Trial) -> None:
        tree = images.read_tree(Path(trial.data_dir))
        params, schedule = trial.params, schedule_of(trial.params.phases, trial.params.epochs)
        self.trial, self.classes, self.tree = trial, tree.classes, tree
        sizes = {phase.copies for phase in schedule.phases if phase.copies} if params.copies else set()
        copies = {size: images.copies_folder(datasets.cache_folder(), trial.case.data, size) for size in sizes}
        self.few, self.few_valid = few(len(tree.train), params.train_images), few(len(tree.valid), params.valid_images)
        decode, self.undecoded = find_decoder()
        self.feed = Feed(Pictures(tree, copies, decode), trial)
        rectangles = any(phase.rect_val for phase in schedule.phases)
        files = [tree.root / tree.valid.path(index) for index in range(len(tree.valid))] if rectangles else []
        # A bad file has any size: it will be refused by name.
        self.sizes = [size or (1, 1) for size in images.sizes_of(files)]

    def train(self, epoch: int, phase: Phase, batch: int) -> Training:
        """The training images in an order and by crops that depend on seed and epoch alone."""
        trial = self.trial
        dice = torch.Generator().manual_seed((trial.seed << 16) + epoch)
        # Fewer images are spread over all classes.
        chosen = torch.randperm(len(self.tree.train), generator=torch.Generator().manual_seed(0))[: self.few]
        order = chosen[torch.randperm(self.few, generator=dice)].tolist()
        crop_seed = (trial.seed << 16) + epoch
        copies = phase.copies if trial.params.copies else 0

        def spec(start: int, stop: int) -> Spec:
            indices = tuple(order[start:stop])
            return Spec("train", indices, phase.size, phase.size, copies, phase.min_scale, crop_seed)

        return training_of(self.feed, self.few, batch, trial, spec)

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
            raise UserError(f"validation needs every image, and cannot use {named(bad)}; repair or remove them")

    def remarks(self) -> list[str]:
        """Return remarks for the row: the decoder if not torchvision's, and images skipped or converted."""
        remarks, bad, odd = [self.undecoded] if self.undecoded else [], self.feed.bad["train"], self.feed.odd
        if bad:
            remarks.append(f"training skipped {named(bad)}")
        if odd:
            remarks.append(f"converted to RGB {named(odd)}")
        return remarks

    def gather(self) -> None:
        """Collect the bad and odd images of all processes. All must call it."""
        if self.trial.case.processes == 1:
            return
        states: list[State] = [{}] * self.trial.case.processes
        dist.all_gather_object(states, self.state())
        for state in states:
            self.restore(state)

    def state(self) -> State:
        """Return the bad and odd images, for a checkpoint and the other processes."""
        return {"bad": self.feed.bad["train"], "bad_valid": self.feed.bad["valid"], "odd": self.feed.odd}

    def restore(self, state: State) -> None:
        """Go on from such a state."""
        self.feed.bad["train"].update(state["bad"])
        self.feed.bad["valid"].update(state["bad_valid"])
        self.feed.odd.update(state["odd"])


class Synthetic:
    """Made-up images, one batch of each shape that stays on the device: the card without an input pipeline."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.classes = trial, range(SYNTHETIC_CLASSES)
        self.device = torch.device(trial.case.device)
        self.dice = torch.Generator().manual_seed(trial.seed)
        self.made: dict[tuple[int, int, int], Batch] = {}

    def run(self, specs: Sequence[Spec]) -> Iterator[Batch]:
        """The batch of each spec's shape, made once."""
        for spec in specs:
            shape = (len(spec.indices), spec.height, spec.width)
            if shape not in self.made:
                x = torch.randint(0, 256, (*shape, 3), dtype=torch.uint8, generator=self.dice)
                y = torch.randint(0, SYNTHETIC_CLASSES, shape[:1], generator=self.dice)
                self.made[shape] = x.to(self.device).permute(0, 3, 1, 2), y.to(self.device)
            yield self.made[shape]

    def train(self, epoch: int, phase: Phase, batch: int) -> Training:
        """As many images as ImageNet trains on."""
        many = few(SYNTHETIC_TRAIN, self.trial.params.train_images)

        def spec(start: int, stop: int) -> Spec:
            return Spec("train", tuple(range(start, stop)), phase.size, phase.size, 0)

        return training_of(self, many, batch, self.trial, spec)

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

    def state(self) -> State:
        """Nothing to keep."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing to do."""


Source = Files | Synthetic
