"""Kinds of target, one folder each: labels, masks, states, statistics. `table.py` lists them."""
