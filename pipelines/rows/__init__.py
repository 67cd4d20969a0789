"""Documents of token ids to shards and rows: hashed, routed, packed and masked."""
