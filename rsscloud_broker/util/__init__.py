"""What any program could use, not only a broker."""
