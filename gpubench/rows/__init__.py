"""The row: one trial as a line of a CSV file. Writes rows, reads them, and stores them inside charts and pages.

Imports no other folder of gpubench. The runner writes rows, and the analysis reads them.
"""
