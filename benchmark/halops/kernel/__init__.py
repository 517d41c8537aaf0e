"""The operators, a package each: its scenarios and the backends they compare."""
