"""Formats of exports, a file each; `pipelines.inspection.options.EXPORT_FORMATS` names them.

A file has a function `write(file, schema, rows, chunks)`: `file` is open and stays so, `rows` is
how many the chunks have together. Where a format has an index of the files of a split, INDEX is its
name, each split has a folder, and `index(schema, files)` gives the content for (name, rows, bytes)
of its files.
"""
