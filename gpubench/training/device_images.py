"""Makes batches from images in the device's memory, for the suites `resnet` and `largebatch`."""

from collections.abc import Callable, Iterator, Sequence

import torch

from gpubench.suite.trial import Trial
from gpubench.training.sharding import Shard

Batch = tuple[torch.Tensor, torch.Tensor]
"""Images and labels."""


def process_seed(trial: Trial) -> int:
    """Return the seed of this process's random transforms. The order of samples has the same seed in all processes."""
    return trial.seed + ((trial.rank + 1) << 32)


class DeviceImages:
    """Batches made on the device from uint8 images in its memory, so that a fast card does not wait for the host.

    Every process has all images, and takes its share of each step: `shards`. `prepare` turns the images of a batch into
    the model's input, with random numbers from the generator that it gets. `shuffle`: each pass has another order.
    """

    def __init__(
        self,
        split: Batch,
        shards: Sequence[Shard],
        trial: Trial,
        prepare: Callable[[torch.Tensor, torch.Generator], torch.Tensor],
        *,
        shuffle: bool,
    ) -> None:
        self.device = torch.device(trial.case.device)
        self.images, self.labels = (tensor.to(self.device) for tensor in split)
        self.samples, self.shards, self.shuffle, self._prepare = len(self.images), shards, shuffle, prepare
        self._order = torch.Generator(self.device).manual_seed(trial.seed)
        self._drawn = torch.Generator(self.device).manual_seed(process_seed(trial))

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[Batch]:
        order = torch.arange(self.samples, device=self.device)
        if self.shuffle:
            order = torch.randperm(self.samples, generator=self._order, device=self.device)
        for shard in self.shards:
            index = order[shard.start : shard.stop]
            yield self._prepare(self.images[index], self._drawn), self.labels[index]
