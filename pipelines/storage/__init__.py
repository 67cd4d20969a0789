"""Files on a disk or in a store (gs://, s3://)."""
