"""Studies. A study, such as `pairs`, `ladder` or `scaling`, answers one kind of question about groups of rows.

A study is a file with a function that yields sections: results, tables and charts, of the types in `section`. `answer`
calls all studies and puts their results in order; `show` renders them. To add a study, add a file here; add the study's
name to `answer.STUDIES`, to `section.ASKED` (kinds of result), and to `suite.suite.STUDIES` if suites may declare it.

`words` and `cases` have what several studies share. `bound` and `listed_peaks` find bottlenecks; `submit` uses them
too. `cards` ranks cards by published figures, `ranked_cases` makes the contents of the site, `fit` judges whether a
step fits a card. This package imports `analysis`.
"""
