"""The command line: Typer commands, the values of their options, what the shell completes.

Imports anything, where a command is called; nothing imports this room.
"""
