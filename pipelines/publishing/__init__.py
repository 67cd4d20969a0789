"""Uploads corpora and datasets to the Hugging Face Hub."""
