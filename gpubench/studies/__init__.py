"""Kinds of question (pairs, ladder, ablation, scaling, batch, stages, roofline): one file each makes sections.

A section holds findings, typed tables and described charts, and draws nothing. Imports `analysis`; `show` draws what
is made here.
"""
