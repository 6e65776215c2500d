"""What lowering functions share."""
