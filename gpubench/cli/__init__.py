"""The command line: one file per command with its options and what it does, and what the shell completes.

May import every room but `worker`, inside functions, so that `--help` is fast. No other room imports this one.
"""
