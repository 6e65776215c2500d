"""PyTorch's own sample calls, replayed on PyTorch's device "polyhal": what runs there, and the page that says so."""
