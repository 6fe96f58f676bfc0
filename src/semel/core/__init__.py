"""The pure core: values and decisions, without I/O, clock or randomness."""
