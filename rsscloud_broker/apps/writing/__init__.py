"""An authoring tool: people write short messages, which the broker publishes as feeds.

Who has signed in writes at ``/write``.  The messages of an account are at ``/people/NAME``, as a
page, as RSS, as Atom and as JSON Feed.  A message is stored in the same transaction in which the
subscribers of these feeds begin to be notified.

Where to look:

``model``       a message and what belongs to it
``writing``     what can be done with messages, by the pages and by programs of other protocols
``door``        the front door: pages and feeds for people, and for their programs MetaWeblog and
                Blogger (``metaweblog``, with ``editors`` and ``entries``), ``micropub`` (with
                ``properties``), and how they are found (``rsd``)
``markup``      HTML of editors as text, and back; ``pictures`` keeps all files of a message
"""
