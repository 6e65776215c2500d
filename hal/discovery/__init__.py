"""Finding devices: plug-ins, probing, validation, ranking, and the benchmark that decides between equals."""
