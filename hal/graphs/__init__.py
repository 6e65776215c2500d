"""Captured graphs as objects: read and written as text and as JSON, drawn, and explained."""
