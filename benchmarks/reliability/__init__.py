"""Campaigns that try to break Polyhal: faults, kills, hostile files. Each is a module with a function that returns counts."""
