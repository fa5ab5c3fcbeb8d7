"""One file for each maker of cards, which reads its sensors through the maker's own library.

A file has what `telemetry.Maker` says: KIND, MISSING, `library` and `find`. A new one is named in `hardware/readers.py`
(and its library in pyproject.toml). Imports `hardware` alone; a library that is missing, or refuses, leaves fields
empty.
"""
