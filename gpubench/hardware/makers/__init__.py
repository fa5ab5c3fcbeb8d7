"""One file for each maker of cards; it reads the cards' sensors through the maker's library.

Each file is listed in `hardware/readers.py`, and its library in pyproject.toml. `KIND` is torch's name for such devices
(AMD's are `cuda` too), and `MISSING` is advice on what to install. `library()` returns the library or None;
`find(library, device)` returns the `telemetry.CardReader` of a device or None. Imports only `hardware`.
"""
