"""Groups rows, pairs the groups and judges their ratios. It prints nothing and draws no charts.

Words of this folder:

- specimen: one physical card of a model; a CPU counts as one, too.
- group: the trials of one case on one specimen in one session.
- hole: a case that ran without a usable trial.
- axis: the column that is compared, such as `card` or `precision`. The other columns that must agree are the key.
- workload: the groups of one suite, recipe, data, source and number of processes: what one table shows.
- stack: software and settings; a difference in one of them can change a time by 20%.

Imports `rows`, and precisions and statuses of `suite`. `studies`, `show`, `cli` and the library call it.
"""
