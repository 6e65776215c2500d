"""Planning of ops: the resolution of an op and its specs to a run, the quarantine of faulty kernels, and explanations."""
