"""The runtime of exported pages, in plain JavaScript, and the parts of a page."""
