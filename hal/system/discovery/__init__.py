"""Device discovery: plug-ins, probing, validation, ranking, and the benchmark that orders devices of one type."""
