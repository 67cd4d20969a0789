"""Documents that are nearly equal: found by MinHash, verified, and which of them stays. Pure."""
