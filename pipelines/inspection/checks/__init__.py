"""What must hold in every shard and row of a set."""
