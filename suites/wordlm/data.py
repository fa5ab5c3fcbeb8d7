"""The text in columns on the device: WikiText-2, or random words by Zipf's law."""

from collections.abc import Iterator
from pathlib import Path

import torch

from gpubench import Trial, UserError
from gpubench.data.datasets import load_corpus

from . import TEST_TOKENS, TRAIN_TOKENS, VALID_TOKENS, VOCABULARY

Batch = tuple[torch.Tensor, torch.Tensor]
"""Tokens (rows, columns), and the tokens that follow them, flat."""


class Slices:
    """Batches of at most `bptt` rows of the text's columns in device memory: views, so that nothing is copied."""

    def __init__(self, columns: torch.Tensor, bptt: int) -> None:
        self.columns, self.bptt = columns, bptt
        self.tokens = (len(columns) - 1) * columns.shape[1]

    def __len__(self) -> int:
        return -(-(len(self.columns) - 1) // self.bptt)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.columns) - 1, self.bptt):
            end = min(start + self.bptt, len(self.columns) - 1)
            yield self.columns[start:end], self.columns[start + 1 : end + 1].view(-1)


def tokens_of(batch: Batch) -> int:
    """Return the number of tokens that a batch predicts."""
    return len(batch[1])


def in_columns(part: torch.Tensor, width: int) -> torch.Tensor:
    """Return tokens (N,) as (N // width, width): a column is a part of the text; an incomplete row is left out."""
    rows = len(part) // width
    return part[: rows * width].view(width, rows).t().contiguous()


def real_text(root: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Return the training, validation and test tokens, int64 (N,), of the corpus in `root`, and its vocabulary."""
    corpus = load_corpus("wikitext-2", root)
    train_part, valid_part, test_part = (
        torch.from_numpy(part).long() for part in (corpus.train, corpus.valid, corpus.test)
    )
    return train_part, valid_part, test_part, corpus.vocabulary


def synthetic_text(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Return as many tokens as WikiText-2 has, drawn by Zipf's law: the n-th word has a weight of 1/n."""
    generator = torch.Generator().manual_seed(seed)
    weights = 1 / torch.arange(1, VOCABULARY + 1)
    train_part, valid_part, test_part = (
        torch.multinomial(weights, tokens, replacement=True, generator=generator)
        for tokens in (TRAIN_TOKENS, VALID_TOKENS, TEST_TOKENS)
    )
    return train_part, valid_part, test_part, VOCABULARY


def padded(words: int, multiple: int) -> int:
    """Return the size of a vocabulary that is padded to a multiple."""
    return -(-words // multiple) * multiple


def load_text(trial: Trial, device: torch.device) -> tuple[Slices, Slices, Slices, int]:
    """Return training, validation and test text in columns on the device, and the size of the model's vocabulary."""
    params = trial.params
    *parts, words = synthetic_text(trial.seed) if trial.synthetic else real_text(Path(trial.data_dir))
    vocabulary = padded(words, params.vocab_multiple)
    train_part, valid_part, test_part = parts

    def columns(part: torch.Tensor, tokens: int, width: int, name: str, option: str) -> Slices:
        part = part[: tokens or len(part)]
        if len(part) < 2 * width:
            raise UserError(
                f"the {name} text has {len(part)} tokens, too few for {width} columns of 2; give a smaller {option}"
            )
        return Slices(in_columns(part, width).to(device), params.bptt)

    return (
        columns(train_part, params.train_tokens, trial.batch_size, "training", "--batch"),
        columns(valid_part, params.valid_tokens, params.valid_batch, "validation", "--set valid_batch"),
        columns(test_part, params.valid_tokens, params.valid_batch, "test", "--set valid_batch"),
        vocabulary,
    )
