"""An authoring tool: people write short messages, which the broker publishes as feeds.

Who has signed in writes at ``/write``.  The messages of an account are at ``/people/NAME``, as a
page, as RSS, as Atom and as JSON Feed.  A message is stored in the same transaction in which the
subscribers of these feeds begin to be notified.
"""
