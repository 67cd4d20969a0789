"""How good a model is: scores, plots, questions. Knows no framework."""
