"""What calls subscribers back: one module for each protocol."""
