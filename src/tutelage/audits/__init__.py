"""Audits: attacks on what a run released, and lower bounds on ε beside what it claims."""
