"""Tables, the store with its one writer, and migrations."""
