"""The parts that all commands share: start and end, --help, --config, printing."""
