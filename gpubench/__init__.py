"""gpubench: how fast does this card train, in FP32 and in mixed precision."""

__version__ = "0.1.0"
