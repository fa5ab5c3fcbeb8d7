"""Checks whether files of rows may be published. Sends nothing.

Imports `rows`, `suite`, and two modules of `studies`: listed_peaks.py and bound.py. Only `cli` calls it.
"""
