"""Shows results: in a terminal, as text formats, as charts and as HTML pages.

Imports the types of `studies`, and `rows` to put rows into charts and pages. The commands call it.
"""
