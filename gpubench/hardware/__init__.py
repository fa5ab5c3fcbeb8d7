"""The machine: cards and their sensors, host, software, links between processes, and what to fix of all that.

Imports suite and data; never torch, opens no CUDA context. Whoever plans, runs or describes a run asks here.
"""
