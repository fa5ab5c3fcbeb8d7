"""Rows to cells, cells to pairs, pairs to verdicts: arithmetic and rules, no sentences and no drawing.

Imports `rows` alone. `studies` and `interop` call it.
"""
