"""report.html: what a set holds and how it was made, on one page."""
