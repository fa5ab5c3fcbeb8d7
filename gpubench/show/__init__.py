"""Faces: what a person sees of findings.

`terminal` and `charts` know findings alone; `formats` and `report` still show cases and comparisons, too.
"""
