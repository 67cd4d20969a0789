"""--preflight: checks a command before a cluster costs money."""
