"""From a wish to rows: plan, one trial per process, clock, precision."""
