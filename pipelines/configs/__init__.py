"""Ready-made flag files (*.yaml), and how flag files are read and written."""
