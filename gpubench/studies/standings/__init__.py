"""Which place each case has among like ones, which rows are behind it, and how many submissions agree on it.

`standings` has every case, whether or not anything was found about it; `agreement` tells submissions apart and
counts them; `contents` is all that a site shows. Imports `analysis`, the other studies and `cards`.
"""
