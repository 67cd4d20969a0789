"""Runs pipelines: the choice of a runner, job servers, workers, progress and failures."""
