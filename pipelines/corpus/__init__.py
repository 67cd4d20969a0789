"""build_corpus: filters, deduplicates and decontaminates documents, and writes those it keeps."""
