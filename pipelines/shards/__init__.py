"""The parts of build_shards: blocks of text -> examples -> routes -> shards -> a dataset."""
