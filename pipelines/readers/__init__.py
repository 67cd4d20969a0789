"""Reads inputs: --input -> files -> blocks -> documents."""
