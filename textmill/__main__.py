"""`python -m textmill flax-clm ...`: the command `textmill` of this Python."""

from textmill.schemas.commands.textmill import main

if __name__ == "__main__":
    main()
