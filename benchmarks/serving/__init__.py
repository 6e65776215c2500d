"""A server of language models as clients meet it: its process, connections to it, and requests with known answers."""
