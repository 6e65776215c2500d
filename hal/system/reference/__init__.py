"""Reference results of ops in float64, with bounds of the error that a device may have."""
