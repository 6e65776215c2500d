"""The C runtime of exported steps: fixed files that every export copies."""
