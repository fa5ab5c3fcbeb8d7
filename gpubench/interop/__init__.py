"""Writes rows in the formats of other tools: benchstat, pyperf, timm, MLPerf's logs and DAWNBench.

Imports `rows` and `analysis`. Only the command `export` calls it.
"""
