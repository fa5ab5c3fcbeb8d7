"""Which place each case has among like ones, which rows are behind it, and how many machines agree on it.

`standings` is what a site shows of all cases, whether or not anything was found about them; `agreement` tells
machines apart and counts them.
"""
