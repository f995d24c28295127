"""Masks of public images: released as codes or votes, decoded, and scored by Dice."""
