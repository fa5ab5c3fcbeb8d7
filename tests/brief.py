"""The sampling of a mode, looked at for moments: for tests of what a suite does, not of how steady it is."""

from dataclasses import replace

from gpubench.training.clock.sampling import Sampling, sampling_for


def brief(mode: str) -> Sampling:
    """As on a CPU, but with laps of a step or two where a real trial's are a quarter of a second and go on longer."""
    usual = replace(sampling_for(mode, accelerator=False), lap_seconds=0.01, resident_seconds=0.0)
    if mode != "sampled":
        return usual
    return replace(usual, warmup_seconds=0.1, train_seconds=0.1, valid_seconds=0.05)
