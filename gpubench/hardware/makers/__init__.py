"""One file for each maker of cards, which reads their sensors through the maker's library.

A file defines KIND, MISSING, `library` and `find` (see `telemetry.Maker`) and is listed in `hardware/readers.py`, its
library in pyproject.toml. Imports only `hardware`. Without the library, fields stay empty.
"""
