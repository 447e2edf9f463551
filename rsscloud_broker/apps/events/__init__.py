"""The front door ``events``: feeds of everything that changed, complete and in order.

The store keeps each ping and each change of a topic as a row, written in the transaction of the
fact.  The *cutter* makes entries of these rows, in logs of the package ``simplefeed``, each row
once.  The front door serves the documents of the logs, and streams new entries to those who watch.

``options``    the keys of the configuration
``names``      the names of the logs, and the URLs of their documents
``entries``    makes entries of pings and changes
``rows``       appends entries to the logs, and removes old ones; in transactions
``cutter``     cuts the feeds from the rows of the store, each half second
``documents``  serves the documents of the feeds
``stream``     streams new entries to crawlers
``door``       the front door, which joins these, with the page ``/events`` about the feeds
"""
