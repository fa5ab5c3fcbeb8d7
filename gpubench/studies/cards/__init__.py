"""How fast cards train by what others published: the figures, a model of them, and what it says of a card.

`public_speeds.csv` has the figures, each with its source; `boards.csv` what data sheets say of the cards. `figures`
reads and sorts them, `model` estimates from all of them how fast each card is, with the spreads of `spreads.toml`.
`ranking` makes the table and the chart of it, `versus` puts two cards beside each other.
"""

REFERENCE = "A100-SXM4-80GB"
"""The card that has speed 1, unless another is named."""
