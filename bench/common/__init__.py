"""Shared by the speed tables: the delayed network, a throwaway sshd, the loopback fleet, tables."""
