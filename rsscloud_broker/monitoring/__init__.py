"""What programs that watch the broker want to know: the health of its parts, and measurements."""
