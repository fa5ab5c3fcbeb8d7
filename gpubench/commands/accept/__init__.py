"""`gpubench accept`: measure a rented card, judge it by others of its kind, write a page.

The statistics and the words are in `studies/acceptance`; the cases are those of the suite `reference`.
"""
