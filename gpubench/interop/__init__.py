"""Writes rows in the formats of other tools: benchstat, pyperf, timm, MLPerf logs and DAWNBench.

Imports `rows` and `analysis`. Only the command `export` calls it.
"""
