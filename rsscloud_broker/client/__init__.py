"""The client side of the protocols: it pings brokers and subscribes to topics, for the command."""
