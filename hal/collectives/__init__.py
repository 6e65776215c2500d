"""The contract of collectives: their description, communicators and process groups."""
