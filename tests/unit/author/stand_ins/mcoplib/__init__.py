"""Stands in for the operator library: its modules register right kernels in Python, on the CPU."""
