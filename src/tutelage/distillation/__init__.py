"""Distilled sets: a few images per class that stand for a whole data set, matched to what was released or to private experts."""
