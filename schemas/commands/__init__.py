"""What every command shares: how it starts, reads flags from files, prints and fails."""
