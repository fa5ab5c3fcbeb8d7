"""Kinds of question (pairs, ladder, ablation, scaling, batch, stages, roofline, goals): one file each makes sections.

A section holds findings, typed tables and described charts, and draws nothing. A new kind is a file here, named in
`answer.STUDIES` and `section.ASKED`, and in `suite.suite.STUDIES` if suites are to declare it. Imports `analysis`;
`show` draws what is made here.
"""
