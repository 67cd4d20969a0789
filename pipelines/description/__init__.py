"""Croissant metadata, a dataset card and a draft of the EU's summary, from checked counts."""
