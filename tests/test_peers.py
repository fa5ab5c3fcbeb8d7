"""What several processes agree on: laps, shares of a step, the straggler, whose fault it was."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.errors import UserError
from gpubench.suite.trial import Lap, Measurement
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.resident import compare_ranks
from gpubench.training.clock.sampling import sampling_for
from gpubench.training.clock.timer import Peers, Timer
from gpubench.training.sharding import shards
from gpubench.worker.failures import Failure, cause, failed, together

LAP = Lap("train", 0, "timed", 4, 40, 2.0, 0.5)


def lap_beside(numbers):
    """The lap of two processes, of which the other sends these numbers."""
    peers = Peers(lambda own: [own, numbers], ("rank 0", "rank 1"))
    return Timer(lambda: None, lambda: 0.0, peers).agreed(LAP)


def test_a_lap_is_all_samples_in_the_time_of_the_slowest_and_steps_are_equal():
    lap = lap_beside([4, 38, 3.0, 0.1])
    assert (lap.steps, lap.samples, lap.seconds, lap.wait_seconds) == (4, 78, 3.0, 0.5)
    with pytest.raises(UserError, match="took 4, 5 steps"):
        lap_beside([5, 50, 2.0, 0.0])


def test_the_straggler_is_the_one_over_a_tenth_slower_than_the_median():
    names = ("rank 0", "rank 1", "rank 2")
    assert compare_ranks(names, [1.0, 1.0, 1.05])["straggler"] == ""
    slow = compare_ranks(names, [1.0, 1.0, 1.5])
    assert slow == {"rank_spread": pytest.approx(0.5), "straggler": "rank 2: 1.50 times the median"}


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 9), st.integers(1, 2), st.booleans())
def test_shares_cover_each_sample_once_in_as_many_steps(samples, batch, world, least, evaluate):
    batch = max(batch, least)
    try:
        every = [
            shards(samples, batch, rank=rank, world=world, least=least, evaluate=evaluate) for rank in range(world)
        ]
    except UserError:
        assert samples < world * batch
        return
    assert len({len(each) for each in every}) == 1
    taken = [index for each in every for shard in each for index in range(shard.start, shard.stop)]
    assert len(taken) == len(set(taken))
    left_out = samples - len(taken)
    assert left_out == 0 or (not evaluate and left_out < least * world)
    for step in zip(*every, strict=True):
        assert sum(shard.weight for shard in step) == pytest.approx(world)
        assert all(shard.stop - shard.start >= least or world == len(step) == 1 for shard in step)


def test_processes_stop_at_the_same_step_though_their_clocks_differ():
    """Two clocks, the second three times as slow; each is told of the other's laps as a group would."""
    laps = {}
    for own, other in ((0.1, 0.3), (0.3, 0.1)):
        time = [0.0]

        def gather(numbers, own=own, other=other):
            theirs = list(numbers)
            if len(numbers) == 4:
                theirs[2] = numbers[2] / own * other
            return [numbers, theirs]

        peers = Peers(gather, ("rank 0", "rank 1"))
        clock = Clock(sampling_for("sampled", accelerator=False), now=lambda time=time: time[0], peers=peers)
        for _ in clock.epochs(30):
            for _ in clock.steps([[0] * 10] * 400, "train"):
                time[0] += own
        for _ in clock.resident():
            time[0] += own
        laps[own] = clock.summary()["laps"]
    assert [(lap.steps, lap.samples) for lap in laps[0.1]] == [(lap.steps, lap.samples) for lap in laps[0.3]]
    assert [lap.seconds for lap in laps[0.1]] == pytest.approx([lap.seconds for lap in laps[0.3]])


def said(at, who, reason, status="failed"):
    return Failure(at, who, replace(failed(reason), status=status))


def test_blame_goes_to_the_first_that_is_no_consequence():
    gone = said(1, "rank 0", "RuntimeError: Connection closed by peer")
    own = said(2, "rank 1", "ValueError: no good")
    assert cause([gone, own], []).reason == "rank 1: ValueError: no good"
    full = said(3, "rank 2", "out of memory", "out_of_memory")
    assert cause([gone, own, full], []).status == "out_of_memory"
    alone = cause([gone], ["rank 1"])
    assert alone.reason.startswith("rank 0 lost the others; no answer from rank 1 (")
    assert cause([said(1, "rank 0", "RuntimeError: Timed out waiting")], ["rank 1"]).status == "timed_out"
    assert cause([], ["rank 0", "rank 1"]).reason == "no process answered; no answer from rank 0, rank 1"


def test_whose_fault_an_error_is():
    expected = {
        "ValueError: no good": "",
        "ended by SIGKILL (out of memory, or killed by a user)": "",
        "RuntimeError: Connection closed by peer": "lost_others",
        "aborted by SIGABRT": "lost_others",
        "RendezvousTimeoutError: ": "waited_for_others",
        "RuntimeError: socket Timed out": "waited_for_others",
    }
    assert {reason: failed(reason).fault for reason in expected} == expected


def test_failures_and_answers_of_several_processes_are_one():
    diverged = Measurement(status="failed", reason="diverged: loss nan", fault="diverged")
    found = cause([said(1, "rank 0", "aborted by SIGABRT"), Failure(2, "rank 1", diverged)], [])
    assert (found.fault, found.reason) == ("diverged", "rank 1: diverged: loss nan")
    assert cause([said(1, "rank 0", "aborted by SIGABRT")], ["rank 1"]).fault == "lost_others"
    a = Measurement(status="ok", peak_memory_bytes=5, allocator_retries=1, precision_error=1e-7)
    b = Measurement(status="ok", peak_memory_bytes=9, allocator_retries=2, precision_error=2e-7)
    both = together([a, b])
    assert (both.peak_memory_bytes, both.allocator_retries, both.precision_error) == (9, 3, 2e-7)
