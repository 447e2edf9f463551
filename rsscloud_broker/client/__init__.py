"""The other side of the protocols: what pings a broker, and what is notified by one."""
