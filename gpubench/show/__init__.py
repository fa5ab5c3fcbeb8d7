"""Faces: what a person sees of sections, in a terminal, as text formats, as charts and as a page.

Imports the types of `studies`, and `rows` for what a chart carries. Commands call it.
"""
