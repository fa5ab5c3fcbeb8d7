"""What bounds a case, and why a lower precision is not faster: the roofline (Williams et al. 2009) of each card.

Imports `analysis` and its own room. It is one of the studies; `gpubench peak` looks up listed peaks here.
"""
