"""Transfers of values from one device to another."""
