"""Releases of sums: public functions of private records, asked once or in reserved rounds; the rest is free."""
