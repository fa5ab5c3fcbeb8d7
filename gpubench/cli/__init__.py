"""The command line: one file per command with its options and output. No package imports it.

Imports all packages but `training` and `worker`. Slow imports are in functions, so that `--help` is fast.
"""
