"""Linear models of text in fastText's form: their files, scores and training."""
