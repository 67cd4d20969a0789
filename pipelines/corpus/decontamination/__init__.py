"""Which documents hold text of evaluation sets, found by runs of words."""
