"""A static site out of rows: findings and rankings, a page for each suite and each card, addresses for every row.

`tables` makes the lines, `addresses` says where everything is, `pages` puts it together. Nothing here reads or writes
a file; commands do.
"""
