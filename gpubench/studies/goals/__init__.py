"""Ways to a goal: accuracy over hours, epoch by epoch, and published runs beside those they compare themselves with.

Imports what `studies` imports, and is imported by `answer` alone.
"""
