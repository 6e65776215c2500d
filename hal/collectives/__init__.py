"""Collectives among devices of one or several processes."""
