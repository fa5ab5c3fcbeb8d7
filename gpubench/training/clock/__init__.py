"""Times a training: laps of steps, when there are enough of them, and what a whole run takes by them.

Pure Python, without torch. `Clock` is what a suite gets as the second argument of `train`.
"""
