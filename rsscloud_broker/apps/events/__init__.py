"""The front door ``events``: feeds of everything that changed, complete and in order.

The store keeps each ping and each change of a topic as a row, written in the transaction of the
fact.  The *cutter* makes entries of these rows, in logs of the package ``simplefeed``, each row
once.  The front door serves the documents of the logs, and streams new entries to those who watch.
"""
