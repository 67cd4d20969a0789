"""The rows and the metadata files of datasets, and the checks that they agree."""
