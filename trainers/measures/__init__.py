"""How good a model is: scores, pictures, questions. Knows no framework."""
