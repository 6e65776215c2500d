"""The graph of a computation: values, producers and users, tracing, rewriting, and its text."""
