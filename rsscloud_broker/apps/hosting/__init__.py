"""The application ``hosting``: stores feeds for their authors, serves them and pings for them.

An author's tool sends the whole feed each time that it changes.  The broker stores it, serves it
at ``/feeds/NAME/rss.xml``, and notifies the subscribers with what was sent.  Nothing is fetched.
A save is one transaction: the new version, the ping, and the beginning of the fan-out.

``options``    the configuration, ``[apps.hosting]``
``documents``  what can be stored: checks feeds, other files, and their paths
``schema``     the tables
``rows``       the SQL that finds and deletes files
``saving``     the SQL that saves them, for many callers at once
``store``      the store: each method is one transaction
``hosting``    the verbs: save, restore and delete
``gate``       who makes a request: names with passwords, tokens
``serving``    GET of the files; those that are often read are kept in memory
``uploading``  PUT and DELETE of the files
``calls``      ``rssCloud.saveRss`` by XML-RPC, SOAP and REST
``page``       the page ``/feeds``
``app``        joins all of these
"""
