"""Export formats, one module each; `pipelines.inspection.options.EXPORT_FORMATS` names them.

A module has a function `write(file, schema, rows, chunks)`, which leaves `file` open; `rows` is the
number of rows in all chunks. If a format has an index of a split's files, INDEX is its name, each
split has a folder, and `index(schema, files)` returns its content from (name, rows, bytes) of the
files.
"""
