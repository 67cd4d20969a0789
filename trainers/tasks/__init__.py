"""What is learned: flags, measures and words of each task. Knows no framework."""
