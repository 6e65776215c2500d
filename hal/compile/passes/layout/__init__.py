"""Passes that decide shapes and strides so that copies disappear."""
