"""Whether a file is fit to be published: what it lacks, and what in its rows speaks against them. Sends nothing.

Imports `rows`, `suite`, the arithmetic of `training/clock` (no torch) and the peaks of `studies/roofline`. Only `cli`
calls it.
"""
