"""Labels of public records: votes and their winner, or every class's noisy share."""
