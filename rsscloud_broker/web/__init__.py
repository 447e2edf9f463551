"""The HTML pages of the broker: the front page, the templates of all pages, their styles
and scripts, and the event stream of the event log.
"""
