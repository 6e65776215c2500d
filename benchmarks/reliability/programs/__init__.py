"""A fuzzer of whole programs: seeded random programs, run on a device and compared with PyTorch."""
