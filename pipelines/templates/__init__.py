"""Flex Templates of Dataflow."""
