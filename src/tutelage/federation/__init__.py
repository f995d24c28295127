"""Hospitals that train alone and meet once: each site's own ledger is the authority over its data.

The engine (Flower) is imported in `wire.py` alone. Everything else here runs, and is tested, without it.
"""
