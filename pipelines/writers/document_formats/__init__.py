"""The file formats of other projects for whole documents, one module each."""
