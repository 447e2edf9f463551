"""Makes the parts of a whole broker and connects them."""
