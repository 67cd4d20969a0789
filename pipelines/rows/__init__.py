"""Documents of token ids -> routes -> rows: packed, masked, never lost. Pure."""
