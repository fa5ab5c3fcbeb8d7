"""One file for each maker of cards, which reads their sensors through the maker's library.

Each file is listed in `hardware/readers.py`, its library in pyproject.toml. It has `KIND`, torch's name for such
devices (AMD's are `cuda` too), and `MISSING`, advice on what to install. `library()` returns the library or None;
`find(library, device)` returns the `telemetry.CardReader` of a device or None. Imports only `hardware`.
"""
