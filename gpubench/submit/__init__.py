"""Checks whether files of rows may be published. Sends nothing.

Imports `rows`, `suite` and the listed peaks of `studies`. Only `cli` calls it.
"""
