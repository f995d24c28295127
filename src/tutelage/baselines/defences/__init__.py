"""Defences of the literature against membership inference, without a guarantee: each charges its ledger ε = ∞ and says so."""
