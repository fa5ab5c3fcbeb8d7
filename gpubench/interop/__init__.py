"""Other tools' formats, in and out, and whether a file is fit to be published.

Imports `rows`, `analysis` and the names of datasets. Only commands call it.
"""
