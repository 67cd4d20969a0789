"""What is learned: flags, metrics and words of each task. Knows no framework."""
