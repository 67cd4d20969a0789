"""train_quality_model: labelled documents to a model of quality, and its evaluation."""
