"""Studies: each answers one kind of question from the groups of rows, such as `pairs`, `ladder` or `scaling`.

A study is a file with a function that yields sections: results, tables and charts, of the types in `section`. `answer`
calls all studies and puts their results in order; `show` renders them. To add one, add a file here and name it in
`answer.STUDIES` and `section.ASKED`, and in `suite.suite.STUDIES` if suites may declare it.

`words` and `cases` have what several studies share. `bound` and `listed_peaks` belong to `roofline`; `submit` uses them
too. `cards` ranks cards by published figures, `ranked_cases` makes the contents of the site, `fit` judges whether a
step fits a card. Imports `analysis`.
"""
