"""Beam's flags that we look at ourselves, before Beam is imported."""

import argparse


def flag_parser(*names: str) -> argparse.ArgumentParser:
    """A parser of some flags, each None where it is not given: for `parse_known_args`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in names:
        parser.add_argument(f"--{name}")
    return parser
