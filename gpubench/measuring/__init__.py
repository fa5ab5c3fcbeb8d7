"""The measuring side: the plan, one process per trial, clock, precision, and a row for each trial."""
