"""Tells rsscloud-broker of the plugins in ``rsscloud_broker_example``.

The broker imports this module at start-up, even where none of them is enabled:
it must be quick, and it holds nothing but the instances that are to be found.
Its own name must be one that no other package chooses: name it after yours.
"""

from rsscloud_broker_example.hello_ping import HelloPingMaker
from rsscloud_broker_example.json_post import JsonPostMaker
from rsscloud_broker_example.line_log import LineLogMaker
from rsscloud_broker_example.notices import NoticesMaker

hello_ping = HelloPingMaker()
json_post = JsonPostMaker()
line_log = LineLogMaker()
notices = NoticesMaker()
