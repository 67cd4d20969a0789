"""What train_tokenizer is made of: text -> counts of words -> merges -> tokenizer.json."""
