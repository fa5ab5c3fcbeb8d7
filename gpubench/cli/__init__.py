"""The command line: one file per command with its options and output.

Imports all packages but `training` and `worker`, slow ones inside functions to keep `--help` fast. None imports it.
"""
