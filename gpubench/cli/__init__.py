"""The command line: one file per command with its options and output.

May import all packages but `worker`, inside functions: `--help` stays fast. No package imports it.
"""
