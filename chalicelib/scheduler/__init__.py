"""Timed jobs of one shape: run_once(now, budget) -> Report; safe twice at once, stop when the budget is spent."""
