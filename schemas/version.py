"""The version of Textmill, which every schema.json records and setup.py reads."""

VERSION = "0.1.0"
