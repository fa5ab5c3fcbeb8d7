"""Other tools' formats, in and out: benchmarks' tables and logs, notebooks, entries of DAWNBench.

Imports `rows`, `analysis` and the names of datasets. Only commands call it.
"""
