"""`gpubench run --sweep`: search a suite's parameter, a learning rate say, over short runs from coarse to fine.

`search.py` says which values are tried, for how long, and which go on; `sweep.py` trains them as ordinary trials.
"""
