"""What each command does that is more than one call: asks for rows, studies and faces, and gives an exit code.

Imports every room but `worker`, which is a process of its own. Only `cli` calls it.
"""
