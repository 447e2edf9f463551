"""Applications: programs around the broker, such as one that stores feeds for their authors.

An application is to the broker what somebody else's program is: it reaches the broker through the
public interfaces only.  ``tests/test_house.py`` has the list of what it may import.
"""
