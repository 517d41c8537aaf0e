"""The implementations that attention scenarios compare, a library each."""
