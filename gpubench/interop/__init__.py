"""Other tools' formats, in and out, and whether a file is fit to be published.

Imports `rows` and `analysis`. Only commands call it.
"""
