"""Matrix products and linear maps."""
