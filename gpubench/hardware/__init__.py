"""The machine: cards and their sensors, host, software, links between processes, and the doctor's checks of them.

The runner, its children and the commands use it. Imports suite and data; never torch, and opens no CUDA context.
"""
