"""The test feed: a feed that gets a new item every 15 minutes, for those who test subscribers.

``/test/rss.xml`` is the feed, and ``/test`` is a page that says what a subscriber should see and
when.  The broker publishes the feed itself, so a subscriber is notified of each item at once, by
rssCloud or by WebSub.
"""
