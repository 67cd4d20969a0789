"""What this machine gives to all rooms: a console to print on, a compiler of loops."""
