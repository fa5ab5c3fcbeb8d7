"""What a suite is and what is asked of it: suite and parameters, case, trial, measurement.

Plain data and the reading of suite files. Imports no other room, and never torch. Every other room speaks in these
terms.
"""
