"""The tasks that rows are made for, one file each; `task.py` defines what a task is."""
