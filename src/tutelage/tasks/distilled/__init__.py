"""Distilled sets: one noisy release of class sums, then images are matched to it."""
