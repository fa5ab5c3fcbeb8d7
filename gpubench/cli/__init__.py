"""The command line: one file per command with its options and output.

It imports all packages but `worker`, and does so inside functions to keep `--help` fast. No package imports it.
"""
