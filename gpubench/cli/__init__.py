"""The command line: one file per command with its options and output.

Imports all packages but `training` and `worker`; slow ones in functions, for a fast `--help`. No package imports it.
"""
