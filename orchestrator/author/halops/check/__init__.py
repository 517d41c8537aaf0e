"""The checks of a config's values against what the checkout's code says."""
