"""Files on a disk or in a store (gs://, s3://), by Beam's file systems."""
