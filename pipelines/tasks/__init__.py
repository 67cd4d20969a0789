"""The tasks that rows are made for, one pure file each; `task.py` says what a task is."""
