"""The version of Textmill, written into every schema and read by setup.py."""

VERSION = "0.1.0"
