"""Services of the machine for all packages: compiled loops, lazy imports, terminal tables."""
