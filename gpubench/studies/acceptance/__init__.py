"""Whether to keep a rented card: its figures against those of others of its kind.

`kind` says whether it is the card that was rented, `alike` reads the rows that may be compared, `limits` is the
statistics, `checks` says keep, return or cannot say, and `page` what is shown of it. Used by `gpubench accept`, and
`alike` by `gpubench doctor` too. `benchmarks/accept_simulation.py` counts how often the rule is wrong.
"""
