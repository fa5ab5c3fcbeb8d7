"""How fast cards train, estimated from published figures. The site and commands such as `gpubench cards` use it.

`figures` reads the figures (public_speeds.csv) and the data sheets of the cards (data_sheets.csv). `ratio` estimates
the speed ratio of two cards. `ranking` makes the table and the chart of all cards, `versus` compares two cards,
`ranked_rates` ranks a measured rate among published ones, `options` finds the cards that a user names.
"""

REFERENCE = "A100-SXM4-80GB"
"""The card with the relative speed 1, unless --relative-to names another."""
