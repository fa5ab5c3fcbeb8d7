"""Makes a static site from rows: results and rankings, and a page for each suite and each card.

`tables` makes the tables, `addresses` the links, `pages` the pages. The command `site` calls it and writes the files.
"""
