"""Every connection that the broker makes, and the guard that watches over them."""
