"""The tokenizer types that can be trained, one file each."""
