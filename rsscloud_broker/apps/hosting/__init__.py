"""The application ``hosting``: stores feeds for their authors, serves them and pings for them.

An author's tool sends the whole feed each time that it changes.  The broker stores it, serves it
at ``/feeds/NAME/rss.xml``, and notifies the subscribers with what was sent.  Nothing is fetched.
A save is one transaction: the new version, the ping, and the beginning of the fan-out.
"""
