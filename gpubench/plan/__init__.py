"""From options to cases and trials, before anything runs: what to measure, on what data, and how long it will take.

Imports suite, data and hardware. The commands make a plan, and the runner carries it out.
"""
