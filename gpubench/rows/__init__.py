"""The row: one trial as one CSV line, how files of them are written and read, and how charts and pages carry them.

Imports no other room. The runner writes rows and the analysis reads them; they share nothing else.
"""
