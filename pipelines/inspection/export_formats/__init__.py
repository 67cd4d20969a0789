"""Formats of exports, a file each; `pipelines.inspection.options.EXPORT_FORMATS` names them."""
