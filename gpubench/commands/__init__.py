"""What each command does, above all other rooms: asks for rows, studies and faces, and gives an exit code.

Only `cli.py` calls them.
"""
