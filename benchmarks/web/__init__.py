"""Exported pages and other runtimes of browsers, in one headless browser."""
