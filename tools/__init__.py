"""Generators of a checkout's files, for developers; not part of the installed package. `generate` runs them all."""
