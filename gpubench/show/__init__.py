"""Shows results: in a terminal, as text formats, as charts and as HTML pages.

Imports `studies`, and `analysis` and `rows` for the rows in charts and pages. The commands and the Python API call it.
"""
