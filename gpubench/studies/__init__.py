"""Kinds of question (pairs, ladder, ablation, scaling, batch, stages, roofline, goals): one file each makes sections.

A section holds findings, typed tables and described charts, and draws nothing. A new kind is a file here, named in
`answer.STUDIES` and `section.ASKED`, and in `suite.suite.STUDIES` if suites are to declare it. Imports `analysis`;
`show` draws what is made here.

`cards` ranks cards by published figures. `bound` and `listed_peaks` are the rules and the data of the roofline;
`submit` uses them too. `ranked_cases` and `agreement` make the contents of the site.
"""
