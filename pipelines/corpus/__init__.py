"""Documents in, documents out: rules, near-duplicates, decontamination."""
