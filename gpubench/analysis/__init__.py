"""Rows to cells, cells to pairs, pairs to verdicts: arithmetic and rules, no sentences and no drawing.

Imports `rows`, and the terms of `suite`. `studies`, `interop` and `commands` call it.
"""
