"""A text on the device as sequences of tokens: random ones for training, those in order for validation.

The suites `gpt` and `finetune` read it. They have the parameters context, tokens and valid_tokens.
"""

from collections.abc import Iterator
from pathlib import Path

import torch

from gpubench.data.datasets import load_bytes
from gpubench.errors import UserError
from gpubench.suite.trial import Trial

BYTES = 256
"""Vocabulary of a text in bytes."""
SYNTHETIC_TOKENS = 1 << 20
Batch = tuple[torch.Tensor, torch.Tensor]
"""Tokens, int64 (N, T), and the tokens that follow them."""


def load_text(trial: Trial, vocabulary: int = BYTES) -> list[torch.Tensor]:
    """Return the bytes of the training and the validation text, uint8 (N,); raises UserError if one is too short.

    Synthetic texts are random tokens of the vocabulary, int32 if that is larger than a byte's.
    """
    if trial.synthetic:
        dice = torch.Generator().manual_seed(trial.seed)
        dtype = torch.uint8 if vocabulary <= BYTES else torch.int32
        return [torch.randint(0, vocabulary, (SYNTHETIC_TOKENS,), dtype=dtype, generator=dice) for _ in range(2)]
    texts = load_bytes("wikitext-2", Path(trial.data_dir))
    for split in ("train", "valid"):
        if len(texts[split]) <= trial.params.context:
            raise UserError(f"the {split} text has {len(texts[split])} bytes; give a smaller --set context")
    return [torch.from_numpy(texts[split]) for split in ("train", "valid")]


def steps_of(trial: Trial) -> int:
    """Return the training steps of an epoch; tokens that fill no step are left out."""
    return max(1, int(trial.params.tokens) // _step_tokens(trial))


def _step_tokens(trial: Trial) -> int:
    """Return the tokens of a training step of all processes."""
    tokens: int = trial.batch_size * trial.params.context * trial.case.processes
    return tokens


class RandomSequences:
    """Batches from random places of a text that stays on the device, as many as an epoch has."""

    def __init__(self, text: torch.Tensor, trial: Trial, device: torch.device) -> None:
        self.text, self.shape = text.to(device), (trial.batch_size, 1)
        self.dice = torch.Generator(device).manual_seed(trial.seed + (trial.rank << 32))
        self.window = torch.arange(trial.params.context + 1, device=device)
        self.steps = steps_of(trial)
        self.tokens = self.steps * _step_tokens(trial)
        """Of an epoch, in all processes."""

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        many, device = len(self.text) - len(self.window) + 1, self.text.device
        for _ in range(self.steps):
            starts = torch.randint(many, self.shape, generator=self.dice, device=device)
            sequences = self.text[starts + self.window].long()
            yield sequences[:, :-1], sequences[:, 1:]


def sequences_in_order(text: torch.Tensor, trial: Trial, device: torch.device) -> list[Batch]:
    """Return batches from the start of a text; what fills no sequence is left out."""
    context = trial.params.context
    end = max(1, min(trial.params.valid_tokens, len(text) - 1) // context) * context
    part = text[: end + 1].to(device).long()
    tokens, targets = (side.view(-1, context).split(trial.batch_size) for side in (part[:-1], part[1:]))
    return list(zip(tokens, targets, strict=True))


def tokens_of(batch: Batch) -> int:
    """Return the number of tokens that a batch predicts."""
    return batch[1].numel()
