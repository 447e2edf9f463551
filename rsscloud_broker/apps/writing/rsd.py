"""Really Simple Discovery: tells editors which APIs there are, and where.

A person types the address of a page into an editor.  The page says where this document is::

    <link rel="EditURI" type="application/rsd+xml" href="https://broker.example/rsd.xml?name=anna"/>

Source: https://cyber.harvard.edu/blogs/gems/tech/rsd.html (RSD 1.0).
"""

from __future__ import annotations

from typing import Final

from lxml import etree

from rsscloud_broker.accounts.names import is_name
from rsscloud_broker.apps.writing.editors import BLOG_ID

PATH: Final = "/rsd.xml"
MEDIA_TYPE: Final = "application/rsd+xml"

_NAMESPACE: Final = "http://archipelago.phrasewise.com/rsd"

#: The APIs that answer at ``/RPC2``, the one that editors should prefer first.
_APIS: Final = ("MetaWeblog", "Blogger")


def rsd_document(public_url: str, home: str) -> bytes:
    """The document for one account.

    :param public_url: the URL of the broker, without a slash at the end.
    :param home: the page with the messages of the account, or the front page if it is unknown.
    """
    rsd = etree.Element("rsd", {"version": "1.0", "xmlns": _NAMESPACE})
    service = etree.SubElement(rsd, "service")
    for name, text in (
        ("engineName", "rsscloud-broker"),
        ("engineLink", f"{public_url}/docs"),
        ("homePageLink", home),
    ):
        etree.SubElement(service, name).text = text
    apis = etree.SubElement(service, "apis")
    for name in _APIS:
        etree.SubElement(apis, "api", _api(name, BLOG_ID, f"{public_url}/RPC2"))
    etree.SubElement(apis, "api", _api("Micropub", "", f"{public_url}/micropub"))
    document: bytes = etree.tostring(rsd, xml_declaration=True, encoding="UTF-8")
    return document


def _api(name: str, blog: str, link: str) -> dict[str, str]:
    preferred = "true" if name == _APIS[0] else "false"
    return {"name": name, "blogID": blog, "preferred": preferred, "apiLink": link}


def rsd_url(public_url: str, name: str) -> str:
    """The URL of the document for an account; for no account in particular if it has no name."""
    return f"{public_url}{PATH}?name={name}" if is_name(name) else f"{public_url}{PATH}"


def discovery_links(public_url: str, name: str) -> str:
    """The value of the header ``Link`` of a page with the messages of an account.

    Programs find the Micropub endpoint (W3C Micropub, section 5.3) and the RSD document by it.
    """
    return (
        f'<{public_url}/micropub>; rel="micropub", '
        f'<{rsd_url(public_url, name)}>; rel="EditURI"; type="{MEDIA_TYPE}"; title="RSD"'
    )
