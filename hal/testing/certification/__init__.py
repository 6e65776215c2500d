"""Running the kit without pytest: certificates, and the diagnosis of kernels that fail."""
