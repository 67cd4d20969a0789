"""What build_shards is made of: blocks of text -> examples -> routes -> shards -> a set."""
