"""The tasks: flags, metrics and reports of each. Imports no framework."""
