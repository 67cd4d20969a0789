"""--preflight: looks at a command before a cluster costs money."""
