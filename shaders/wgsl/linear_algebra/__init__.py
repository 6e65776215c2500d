"""Shaders of dense linear algebra."""
