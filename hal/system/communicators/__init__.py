"""Communicators: implementations of collectives among devices of one or several processes."""
