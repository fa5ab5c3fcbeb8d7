"""Studies (pairs, ladder, ablation, scaling, batch, stages, roofline, goals): one file per study makes its sections.

A section contains results, typed tables and chart descriptions. `show` renders them. To add a study, add a file here
and name it in `answer.STUDIES` and `section.ASKED`, and in `suite.suite.STUDIES` if suites may declare it. Imports
`analysis`.

`cards` ranks cards by published figures. `bound` and `listed_peaks` are the rules and the data of the roofline;
`submit` uses them too. `ranked_cases` makes the contents of the site.
"""
