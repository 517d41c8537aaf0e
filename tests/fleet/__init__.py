"""Tests on real sshd and Docker engines of this machine (env/loopback)."""
