"""What listens: one module for each inbound protocol, and the site that mounts them."""
