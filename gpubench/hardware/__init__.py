"""The machine: cards and their sensors, host, software, links between processes, and the doctor's checks of them.

Used by the runner and by `doctor`. Imports suite and data; never torch, and opens no CUDA context.
"""
