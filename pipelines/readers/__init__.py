"""What is read: --input -> files -> blocks -> documents."""
