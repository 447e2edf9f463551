"""Front doors take requests in: one module per protocol, and ``site``, which routes to them."""
