"""Headers that kernels of several folders include. README.md explains the macros of the row
kernels."""
