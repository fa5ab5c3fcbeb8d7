"""The clock: times a training in laps of steps, decides when there are enough, and projects the time of a whole run.

Runs without torch. Suites get a `Clock` as the second argument of `train`.
"""
