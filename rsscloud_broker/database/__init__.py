"""The generic half of the storage: engines, threads, the writer, tables of any kind."""
