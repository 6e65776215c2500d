"""Values that cross from one device to another."""
