"""The batch search against made-up memories: right, frugal, and never asking twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.runner.batch_search import ProbeResult, fastest_batch, largest_batch
from gpubench.runner.batches import MOST


class Card:
    """A card on which a batch takes `base + batch * each` bytes and fits under `limit`."""

    def __init__(self, limit, base=1000, each=10, holes=(), rate=lambda b: b, resting=0):
        self.limit, self.base, self.each, self.holes, self.rate = limit, base, each, holes, rate
        self.resting = resting
        self.asked: list[int] = []

    def __call__(self, batch):
        assert batch not in self.asked, "asked twice"
        self.asked.append(batch)
        memory = self.base + batch * self.each
        fits = memory <= self.limit and batch not in self.holes
        return ProbeResult(fits, self.rate(batch), memory if fits else 0, self.resting)

    @property
    def true(self):
        return (self.limit - self.base) // self.each // 8 * 8


def nearly(batch, true):
    """Exact where a batch is small, else to a 32nd."""
    return true - max(0 if true <= 256 else 8, true // 32) <= batch <= true


@given(base=st.integers(0, 10**6), each=st.integers(1, 10**5), batch=st.integers(8, 20_000), known=st.booleans())
def test_largest_is_the_threshold_with_few_probes(base, each, batch, known):
    card = Card(base + batch * each, base, each)
    result = largest_batch(card, capacity_bytes=card.limit if known else None, cap=MOST)
    assert nearly(result.batch, card.true)
    # Without a capacity: 13 doublings to 32,768, 11 halvings down to 8, and the two above the edge.
    assert len(card.asked) <= (12 if known else 26)


@given(cap=st.integers(8, 5000), batch=st.integers(8, 5000))
def test_the_cap_holds_and_is_told(cap, batch):
    card = Card(1000 + batch * 10)
    result = largest_batch(card, capacity_bytes=card.limit, cap=cap)
    assert nearly(result.batch, min(card.true, cap // 8 * 8))
    assert result.capped == (result.batch == cap // 8 * 8)


@given(share=st.floats(0, 0.5), batch=st.integers(8, 20_000))
def test_a_capacity_that_promises_too_much_costs_few_probes(share, batch):
    limit = 10**12
    base = int(share * limit)
    card = Card(limit, base, (limit - base) // batch)
    result = largest_batch(card, capacity_bytes=int(limit / 0.97), cap=MOST)
    assert nearly(result.batch, card.true)
    assert len(card.asked) <= 20


@pytest.mark.parametrize("batch", [40, 400, 1500, 2500])
@pytest.mark.parametrize("lost", [0.0, 0.015])
def test_a_card_that_tells_what_rests_takes_five_probes(batch, lost):
    """`lost` is what fragments take of the memory beyond what is told."""
    limit = 140 * 10**9
    base = 10**9
    card = Card(int(limit * (1 - lost)), base, (limit - base) // batch, resting=base)
    result = largest_batch(card, capacity_bytes=limit, cap=MOST)
    assert 0.96 * card.true <= result.batch <= card.true
    assert len(card.asked) <= (5 if batch >= 400 else 7)


def test_few_probes_are_enough():
    card = Card(140 * 10**9, 10**9, 9 * 10**7, resting=10**9)
    result = largest_batch(card, capacity_bytes=card.limit, cap=MOST, rough=True)
    assert card.asked == [8]
    assert 0.8 * card.true < result.batch < card.true
    assert search(Card(140 * 10**9, 10**9, 9 * 10**7, resting=10**9), cap=1200, known=True) == (1200, True, [8])
    # Of AlexNet with LARS: at small batches what the optimizer takes for a moment is more than the images take.
    limit, asked = 11 * 10**9, []

    def probe(batch):
        asked.append(batch)
        memory = 500 * 10**6 + max(950 * 10**6, batch * 7 * 10**6)
        return ProbeResult(memory <= limit, 1.0, memory, 500 * 10**6)

    result = largest_batch(probe, capacity_bytes=limit, cap=MOST)
    assert result.batch >= 0.96 * 1500
    assert len(asked) <= 10, asked


def search(card, *, cap=MOST, known=False):
    result = largest_batch(card, capacity_bytes=card.limit if known else None, cap=cap)
    return result.batch, result.capped, card.asked


def test_which_batches_are_tried():
    assert search(Card(2000)) == (96, False, [8, 16, 32, 64, 128, 96, 112, 104, 120])
    # Of 1000 that fit: 16 + 0.97 x 9840 / 10 is 970, so 968; from there 968 + 0.97 x 320 / 10 is 999, so 992, which is
    # less than a 32nd below what does not fit.
    assert search(Card(11_000), known=True) == (992, False, [8, 16, 968, 992])
    assert search(Card(8064, 100, 124), known=True) == (64, False, [8, 16, 56, 64, 72, 80, 88])
    assert search(Card(10**6, holes={104}), cap=110) == (96, False, [8, 16, 32, 64, 104, 80, 88, 96])
    assert search(Card(10**6), cap=8) == (8, True, [8])
    assert search(Card(10**6), cap=15) == (8, True, [8])


@pytest.mark.parametrize(("limit", "cap", "answer"), [
    (1050, MOST, (4, False, [8, 4])), (1050, 100, (4, False, [8, 4])), (1050, 6, (4, True, [4])),
    (1020, 6, (2, False, [4, 2])), (1020, 3, (2, True, [2])), (1010, MOST, (1, False, [8, 4, 2, 1])),
    (1009, 4, (None, False, [4, 2, 1])),
])  # fmt: skip
def test_memories_in_which_8_do_not_fit(limit, cap, answer):
    assert search(Card(limit), cap=cap) == answer
    card = Card(limit)
    result = fastest_batch(card, cap=cap)
    assert (result.batch, result.capped, card.asked) == answer
    assert ("not even a batch of 1" in result.reason) == (answer[0] is None)


def test_the_curve_by_hand():
    def probe(batch):
        return ProbeResult(batch <= 16, 100 / 3, batch * 10)

    curve = largest_batch(probe, capacity_bytes=None, cap=MOST).curve
    assert curve == ((8, 33.333, 80), (16, 33.333, 160), (24, 0.0, 240), (32, 0.0, 320), (40, 0.0, 400))


DIPS = {8: 10, 16: 9, 32: 12, 64: 11, 128: 13, 256: 12, 512: 11}
"""Falls once and rises again, twice."""


@pytest.mark.parametrize(
    ("card", "cap", "batch", "asked"),
    [
        (Card(10**9, rate=lambda b: 1000 - abs(b - 64)), MOST, 64, [8, 16, 32, 64, 128, 256, 48, 96]),
        (Card(10**9, rate=lambda b: 1000 - abs(b - 8)), MOST, 8, [8, 16, 32]),
        (Card(10**9, rate=lambda b: 5), MOST, 8, [8, 16, 32]),
        (Card(10**9, rate=lambda b: DIPS.get(b, 1)), MOST, 128, [8, 16, 32, 64, 128, 256, 512, 96, 192]),
        (Card(10**9, rate=lambda b: DIPS.get(b, 14)), MOST, 96, [8, 16, 32, 64, 128, 256, 512, 96, 192]),
        (Card(2000), MOST, 96, [8, 16, 32, 64, 128, 48, 96]),
        (Card(10**9), 100, 96, [8, 16, 32, 64, 96, 72]),
        (Card(10**9), 96, 96, [8, 16, 32, 64, 96, 72]),
        (Card(10**9, rate=lambda b: 1000 - abs(b - 64)), 96, 64, [8, 16, 32, 64, 96, 48]),
        (Card(10**9), 8, 8, [8]),
    ],
)
def test_the_probes_of_the_fastest(card, cap, batch, asked):
    result = fastest_batch(card, cap=cap)
    assert (result.batch, card.asked) == (batch, asked)
    assert result.capped == (batch == cap // 8 * 8)
