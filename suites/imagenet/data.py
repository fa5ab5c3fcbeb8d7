"""Reads the user's images in loader processes, or makes random images; divides them into passes, steps and batches."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from gpubench import Trial, UserError
from gpubench.data import crops, datasets, images
from gpubench.data.images import FilesRead, Made, Spec
from gpubench.data.schedules import Phase, schedule_of
from gpubench.hardware.environment import cpu_count, memory_for_files
from gpubench.training import Shard, shards

from .network import Batch

NotedImages = dict[str, dict[str, str]]
"""Images that could not be used (`bad train`, `bad valid`) with reasons; images that are not RGB (`odd`) with modes."""
SYNTHETIC_CLASSES, SYNTHETIC_TRAIN, SYNTHETIC_VALID = images.IMAGENET
SYNTHETIC_SHAPES = ((500, 375), (375, 500), (500, 333), (500, 500))
"""Common sizes of photographs, (width, height); synthetic validation images have them in turn."""
MOST_WORKERS = 32
"""Most loader processes of a training process by default."""
MOST_NAMED = 5
"""Most files that a remark or an error names."""


class Pictures(Dataset[Made]):
    """A dataset whose items are batches of uint8 images; it has no state, so all phases use one pool of processes."""

    def __init__(self, tree: images.Tree, copies: Mapping[int, Path]) -> None:
        self.splits = {"train": tree.train, "valid": tree.valid}
        self.roots = {0: tree.root, **copies}

    def __getitem__(self, spec: Spec) -> Made:
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
    ) -> tuple[NDArray[np.uint8], int]:
        """Return the image's pixels and its index; in training a bad file is replaced by the next good one."""
        for step in range(len(split)):
            at = (index + step) % len(split)
            file = split.path(at)
            try:
                image, mode = images.open_image(self.roots[spec.copies] / file)
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
                return np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=box)), at
            cut = crops.random_box(image.size, spec.min_scale, dice)
            pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=cut))
            return pixels[:, ::-1] if dice.random() < 0.5 else pixels, at
        return np.zeros((spec.height, spec.width, 3), dtype=np.uint8), index  # `Feed.run` sees that all are bad


@dataclass(frozen=True)
class Pass:
    """One pass over images, in the batches of `specs`."""

    feed: "Feed | SyntheticFeed"
    specs: Sequence[Spec]
    samples: int
    """Images that all processes read together."""

    def __len__(self) -> int:
        return len(self.specs)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.feed.run(self.specs))


@dataclass(frozen=True)
class Training:
    """A pass over training images. Yields, for each step, the batches whose gradients are added up."""

    batches: Pass
    images_per_step: int
    """Images in a step of all processes together."""
    weights: Sequence[Sequence[float]]
    """Factors for the loss of each batch of each step, so that every image of all processes has the same weight."""

    def __len__(self) -> int:
        return len(self.weights)

    def __iter__(self) -> Iterator[list[Batch]]:
        batches = iter(self.batches)
        for weights in self.weights:
            yield list(islice(batches, len(weights)))


def cut(shard: Shard, batch: int) -> list[Shard]:
    """Return a shard in parts of `batch` samples and a remainder; their weights add up to the shard's."""
    starts = list(range(shard.start, shard.stop, batch))
    if batch > 2 and len(starts) > 1 and shard.stop - starts[-1] == 1:
        starts[-1] -= 1  # BatchNorm cannot train on one image
    scale = shard.weight / (shard.stop - shard.start)
    return [
        Shard(start, stop, (stop - start) * scale)
        for start, stop in zip(starts, [*starts[1:], shard.stop], strict=True)
    ]


def named(bad: Mapping[str, str]) -> str:
    """Return `3 images: a.jpg (truncated), ...`."""
    first = ", ".join(f"{images.shown(file)} ({why})" for file, why in sorted(bad.items())[:MOST_NAMED])
    return f"{len(bad)} image{'s' * (len(bad) > 1)}: {first}{', ...' * (len(bad) > MOST_NAMED)}"


def workers_of(trial: Trial) -> int:
    """Return the number of loader processes of this training process: by default its share of the CPUs, less one.

    The default is at most MOST_WORKERS: two batches of each are in shared memory, which is small in a container.
    """
    if trial.params.workers >= 0:
        return int(trial.params.workers)
    return max(1, min(MOST_WORKERS, cpu_count() * trial.case.nodes // trial.case.processes - 1))


class Feed:
    """One pool of loader processes for all passes over the data."""

    def __init__(self, pictures: Pictures, trial: Trial, files_read: FilesRead, noted: NotedImages) -> None:
        self.device = torch.device(trial.case.device)
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.specs: Sequence[Spec] = ()
        self.files_read, self.noted = files_read, noted
        self.stopped = False
        self.train_images = len(pictures.splits["train"])
        self.loader = DataLoader(
            pictures,
            sampler=self,
            batch_size=None,
            num_workers=workers_of(trial),
            persistent_workers=workers_of(trial) > 0,
            pin_memory=self.device.type == "cuda",
        )

    def __len__(self) -> int:
        return len(self.specs)

    def __iter__(self) -> Iterator[Spec]:
        """Yield the next specs to torch's loader."""
        for spec in self.files_read.again(self.specs):
            if self.stopped:
                return
            yield spec

    def run(self, specs: Sequence[Spec]) -> Iterator[Batch]:
        """Yield uint8 images (N, 3, H, W) and labels of each spec, on the device."""
        self.specs, self.stopped = specs, False
        batches: Iterator[Made] = iter(self.loader)
        try:
            for spec, made in zip(specs, batches, strict=False):
                self.noted[f"bad {spec.split}"].update(made.bad)
                if len(self.noted["bad train"]) == self.train_images:
                    raise UserError(f"nothing to train on: cannot use {named(self.noted['bad train'])}")
                self.noted["odd"].update(made.odd)
                x, y = self.moved(made)
                yield x.permute(0, 3, 1, 2), y
        finally:
            self.stopped = True
            for _ in batches:  # discard the batches in progress, or the next pass would wait for them
                pass

    def moved(self, made: Made) -> Batch:
        """Return images and labels on the device; a card copies them while it computes earlier steps."""
        if self.stream is None:
            return made.x.to(self.device), made.y.to(self.device)
        with torch.cuda.stream(self.stream):
            x, y = made.x.to(self.device, non_blocking=True), made.y.to(self.device, non_blocking=True)
        steps = torch.cuda.current_stream(self.device)
        steps.wait_stream(self.stream)
        for tensor in (x, y):
            tensor.record_stream(steps)  # so that their memory is not reused before their step ends
        return x, y


class SyntheticFeed:
    """Random images: one batch of each shape, which stays on the device. So a run has no input pipeline."""

    def __init__(self, trial: Trial) -> None:
        self.device = torch.device(trial.case.device)
        self.generator = torch.Generator().manual_seed(trial.seed)
        self.batches: dict[tuple[int, int, int], Batch] = {}

    def run(self, specs: Sequence[Spec]) -> Iterator[Batch]:
        """Yield the batch of each spec's shape, made once."""
        for spec in specs:
            shape = (len(spec.indices), spec.height, spec.width)
            if shape not in self.batches:
                x = torch.randint(0, 256, (*shape, 3), dtype=torch.uint8, generator=self.generator)
                y = torch.randint(0, SYNTHETIC_CLASSES, shape[:1], generator=self.generator)
                self.batches[shape] = x.to(self.device).permute(0, 3, 1, 2), y.to(self.device)
            yield self.batches[shape]


class Source:
    """The images that a run trains and validates on, and the remarks on them for its row."""

    feed: Feed | SyntheticFeed
    train_images: Sequence[int]
    """Indices of the images to train on. From a folder, `--set train_images=N` takes N at random."""
    valid_images: Sequence[int]
    """Indices of the images to validate on."""
    sizes: Sequence[tuple[int, int]]
    """Width and height of each validation image, by index. Empty for a folder if no phase validates on rectangles."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.too_large = False
        self.noted: NotedImages = {"bad train": {}, "bad valid": {}, "odd": {}}
        params = trial.params
        schedule = schedule_of(params.phases, params.epochs)
        rectangles = any(phase.rect_val for phase in schedule.phases)
        if trial.synthetic:
            self.classes = SYNTHETIC_CLASSES
            self.train_images = range(min(params.train_images or SYNTHETIC_TRAIN, SYNTHETIC_TRAIN))
            self.valid_images = range(min(params.valid_images or SYNTHETIC_VALID, SYNTHETIC_VALID))
            self.sizes = [SYNTHETIC_SHAPES[index % len(SYNTHETIC_SHAPES)] for index in self.valid_images]
            self.feed = SyntheticFeed(trial)
            return
        tree = images.read_tree(Path(trial.data_dir))
        self.classes = len(tree.classes)
        train, valid = len(tree.train), len(tree.valid)
        order = torch.randperm(train, generator=torch.Generator().manual_seed(0))
        self.train_images = order[: params.train_images or train].tolist()
        self.valid_images = random.Random(0).sample(range(valid), min(params.valid_images or valid, valid))
        files = [tree.root / tree.valid.path(index) for index in range(valid)] if rectangles else []
        # A bad file gets an arbitrary size: it will be refused by name.
        self.sizes = [size or (1, 1) for size in images.sizes_of(files)]
        copies = {phase.copies for phase in schedule.phases if phase.copies} if params.copies else set()
        folders = {size: images.copies_folder(datasets.cache_folder(), trial.case.data, size) for size in copies}
        pictures = Pictures(tree, folders)
        most_bytes = memory_for_files() / (len(self.train_images) + len(self.valid_images))
        large = {size for size, root in pictures.roots.items() if images.mean_bytes(root, tree.train) > most_bytes}
        is_sample = trial.case.mode != "full"
        self.too_large = is_sample and any(self.copies(phase) in large for phase in schedule.phases)
        self.feed = Feed(pictures, trial, FilesRead(set(pictures.roots) - large if is_sample else ()), self.noted)

    def copies(self, phase: Phase) -> int:
        """Return the size of the copies that a phase reads; 0: the originals."""
        return phase.copies if self.trial.params.copies else 0

    def train(self, epoch: int, phase: Phase, batch: int) -> Training:
        """Return this process's part of an epoch, in batches of at most `batch`; the order depends on seed and epoch.

        A step has `global_batch` images of all processes together. If that is 0, it has `batch` of each process. A last
        step with fewer than two images for each process is left out, because BatchNorm cannot train on one.
        """
        world, order, seed = self.trial.case.processes, self.train_images, (self.trial.seed << 16) + epoch
        if not self.trial.synthetic:
            shuffled = torch.randperm(len(order), generator=torch.Generator().manual_seed(seed))
            order = torch.tensor(order)[shuffled].tolist()
        images_of_step = min(self.trial.params.global_batch // world or batch, max(1, len(order) // world))
        least = 2 if images_of_step > 1 else 1
        steps = [
            cut(shard, batch)
            for shard in shards(len(order), images_of_step, rank=self.trial.rank, world=world, least=least)
        ]
        copies = self.copies(phase)
        specs = [
            Spec("train", tuple(order[part.start : part.stop]), phase.size, phase.size, copies, phase.min_scale, seed)
            for parts in steps
            for part in parts
        ]
        weights = [[part.weight for part in parts] for parts in steps]
        return Training(Pass(self.feed, specs, len(order)), images_of_step * world, weights)

    def valid(self, phase: Phase, batch: int, *, rectangles: bool) -> Pass:
        """Return the validation images: centre squares, or rectangles of each image's own shape, batched by shape."""
        rank, world = self.trial.rank, self.trial.case.processes
        shapes = [(phase.size, phase.size)] * len(self.valid_images)
        if rectangles:
            shapes = [crops.rectangle(self.sizes[index], phase.size) for index in self.valid_images]
        specs = []
        for (width, height), places in crops.batches_by_shape(shapes, batch * world):
            # This process's part of the batch, which may be empty.
            part = places[len(places) * rank // world : len(places) * (rank + 1) // world]
            indices = tuple(self.valid_images[place] for place in part)
            specs.append(Spec("valid", indices, width, height, self.copies(phase)))
        random.Random(0).shuffle(specs)  # so that a sampled run validates on various shapes
        return Pass(self.feed, specs, len(self.valid_images))

    def refuse_bad(self) -> None:
        """Raise UserError, with their names, if validation images could not be used: a score needs every image."""
        if bad := self.noted["bad valid"]:
            raise UserError(f"validation needs every image, and cannot use {named(bad)}; repair or remove them")

    def remarks(self) -> list[str]:
        """Return remarks for the row: too little memory, images skipped or converted."""
        remarks = list[str]()
        if self.too_large:
            remarks.append("the images exceed the free memory: later epochs are projected as if read from disk")
        if bad := self.noted["bad train"]:
            remarks.append(f"training skipped {named(bad)}")
        if odd := self.noted["odd"]:
            remarks.append(f"converted to RGB {named(odd)}")
        return remarks

    def gather(self) -> None:
        """Collect the bad and odd images of all processes. All must call it."""
        if self.trial.case.processes == 1:
            return
        everywhere: list[NotedImages] = [{}] * self.trial.case.processes
        dist.all_gather_object(everywhere, self.noted)
        for noted in everywhere:
            self.restore(noted)

    def restore(self, noted: NotedImages) -> None:
        """Add the images that another process, or an earlier one, has noted."""
        for kind, files in noted.items():
            self.noted[kind].update(files)
