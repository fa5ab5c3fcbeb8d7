"""From options to a session, before anything runs: what to measure, on what data, and how long it will take.

Imports suite, data and hardware. The commands make the options, and the runner carries the session out.
"""
