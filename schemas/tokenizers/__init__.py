"""The files of tokenizers and their chat templates, from sources that may be untrusted."""
