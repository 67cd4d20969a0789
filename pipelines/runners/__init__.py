"""What runs a pipeline: engines, their programs, their workers, and what they say."""
