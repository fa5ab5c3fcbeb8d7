"""Group rows, pair the groups and judge their ratios. It prints nothing and draws no charts.

Imports `rows`, and the terms of `suite`. `studies`, `show` and `cli` call it.
"""
