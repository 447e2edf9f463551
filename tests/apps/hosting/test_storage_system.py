"""``xmlStorageSystem`` by XML-RPC and SOAP, as old clients call it."""

from __future__ import annotations

import xmlrpc.client
from typing import Any

from attrs import evolve

from rsscloud_broker.apps.hosting.app import make_hosting
from rsscloud_broker.apps.hosting.documents import EXTENSIONS
from rsscloud_broker.apps.hosting.options import HostingOptions
from tests.accounts.fixture import PASSWORD
from tests.apps.hosting.fixture import BASE, PATH, URL, HostingTestCase, a_feed

FOLDER = f"{BASE}/dave/"
PNG = b"\x89PNG\r\n\x1a\n\0\1\2"


class StorageSystemTestCase(HostingTestCase):
    def call(self, name: str, *parameters: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.house.xmlrpc(f"xmlStorageSystem.{name}", *parameters)
        return answer

    def save(self, names: Any, files: Any, password: str = PASSWORD) -> dict[str, Any]:
        return self.call("saveMultipleFiles", "dave", password, names, files)

    def delete(self, *names: Any) -> dict[str, Any]:
        return self.call("deleteMultipleFiles", "dave", PASSWORD, list(names))

    def registered(self, email: Any = "dave", name: Any = "Dave", password: str = PASSWORD) -> Any:
        return self.call("registerUser", email, name, password, 5335, "Radio UserLand/8.0.8", "1-2")


class StorageSystemTests(StorageSystemTestCase):
    options = HostingOptions(max_account_bytes=4000, max_feed_bytes=3000, max_files=3)

    # who calls

    def test_registered_user(self) -> None:
        welcome = {"flError": False, "message": "Welcome back, dave!", "usernum": "dave"}
        for email, name in (
            ("dave", "Dave Winer"),
            (" DAVE ", ""),
            ("", "dave"),
            ("dave@example.org", "Dave Winer"),
            ("editor@example.org", "dave"),
        ):
            self.assertEqual(self.registered(email, name), welcome)
        five = self.call("registerUser", "dave", "", PASSWORD, 5335, "Radio")
        self.assertEqual(five, welcome)

    def test_strangers_cannot_register(self) -> None:
        for email, password in (("ewa", PASSWORD), ("dave", "wrong"), ("anna", "wrong")):
            answer = self.registered(email, password=password)
            self.assertIs(answer["flError"], True)
            self.assertIn("ask the operator", answer["message"])
        names = [each.name for each in self.successResultOf(self.house.store.accounts())]
        self.assertEqual(names, ["anna", "dave"])

    def test_wrong_password(self) -> None:
        for name, parameters in (
            ("getServerCapabilities", ()),
            ("saveMultipleFiles", (["rss.xml"], [a_feed().decode()])),
            ("deleteMultipleFiles", (["rss.xml"],)),
        ):
            answer = self.call(name, "dave", "wrong", *parameters)
            expected = {"flError": True, "message": "The name or the password is wrong."}
            self.assertEqual(answer, expected)
        self.assert_nothing_stored()

    def test_parameters(self) -> None:
        said = self.house.fault("xmlStorageSystem.saveMultipleFiles", "dave", PASSWORD)
        self.assertIn("there aren't enough parameters", said)

    def test_old_names_of_registrations_are_still_there(self) -> None:
        self.assertIn("xmlStorageSystem.rssPleaseNotify", self.house.xmlrpc("system.listMethods"))

    # what there is

    def test_capabilities(self) -> None:
        self.save(["rss.xml", "a.txt"], [a_feed(), b"12345"])
        answer = self.call("getServerCapabilities", "dave", PASSWORD)
        self.assertEqual(
            answer,
            {
                "flError": False,
                "message": "Hello, dave!",
                "legalFileExtensions": list(EXTENSIONS),
                "maxFileSize": 3000,
                "maxBytesPerUser": 4000,
                "ctBytesInUse": len(a_feed()) + 5,
                "yourUpstreamFolderUrl": FOLDER,
            },
        )

    # saving

    def test_saves_files(self) -> None:
        self.house.subscribe()
        names = ["rss.xml", "2002/09/pic.png", "/notes.txt"]
        answer = self.save(names, [a_feed().decode(), xmlrpc.client.Binary(PNG), "héllo"])
        self.assertEqual(
            answer,
            {
                "flError": False,
                "message": "3 files were saved for you, dave.",
                "urlList": [URL, f"{FOLDER}2002/09/pic.png", f"{FOLDER}notes.txt"],
                "yourUpstreamFolderUrl": FOLDER,
            },
        )
        self.assertEqual(self.house.get().body, a_feed())
        picture = self.house.get("/feeds/dave/2002/09/pic.png")
        self.assertEqual((picture.body, picture.headers["content-type"]), (PNG, "image/png"))
        self.assertEqual(self.house.get("/feeds/dave/notes.txt").text, "héllo")
        self.assertEqual([walk.topic for walk in self.house.walks()], [URL])
        self.assertEqual([ping.url for ping in self.house.pings()], [URL])

    def test_one_file(self) -> None:
        answer = self.save("rss.xml", a_feed().decode())
        self.assertEqual(answer["message"], "1 file was saved for you, dave.")

    def test_all_or_nothing(self) -> None:
        good = a_feed().decode()
        for names, files, said in (
            (["rss.xml", "../../x.xml"], [good, good], "cannot be the name of a file"),
            (["rss.xml", "x.svg"], [good, "<svg/>"], ".rss"),
            (["rss.xml", "x.xml"], [good, "<html/>"], "because of 'x.xml'. This is neither RSS"),
            (["rss.xml", "x.txt"], [good, "x" * 3001], "because of 'x.txt'. This has 3,001 bytes"),
            (["rss.xml", "x.png"], [good, "no picture"], "no image"),
            (["rss.xml"], [good, good], "send as many of each"),
            (["rss.xml", 7.5, None], [good], "list of at most 200 strings"),
            ([f"{number}.txt" for number in range(201)], ["x"] * 201, "at most 200"),
            (["rss.xml", "x.txt"], [good, {}], "as a string or as base64"),
        ):
            answer = self.save(names, files)
            self.assertIs(answer["flError"], True)
            self.assertIn(said, answer["message"])
        self.assert_nothing_stored()

    def test_no_room_for_the_last(self) -> None:
        names = [f"{number}.txt" for number in range(4)]
        answer = self.save(names, ["x"] * 4)
        self.assertIs(answer["flError"], True)
        self.assertTrue(answer["message"].startswith("3.txt: Your account has 3 files"))
        self.assertEqual(answer["urlList"], [*(f"{FOLDER}{name}" for name in names[:3]), ""])

    # deleting

    def test_deletes_files(self) -> None:
        self.save(["rss.xml", "a.txt"], [a_feed(), b"1"])
        answer = self.delete("rss.xml", "/a.txt")
        self.assertEqual(
            answer,
            {
                "flError": False,
                "message": "2 files were deleted for you, dave.",
                "errorList": ["", ""],
            },
        )
        self.assertEqual(self.house.get().status, 410)
        topic = self.successResultOf(self.house.broker_store.topic(URL))
        assert topic is not None
        self.assertTrue(topic.ended)
        self.assertIsNone(self.successResultOf(self.house.broker_store.topic(f"{FOLDER}a.txt")))

    def test_files_that_are_not_there(self) -> None:
        self.save(["a.txt"], [b"1"])
        answer = self.delete("a.txt", "../anna/rss.xml", "")
        self.assertIs(answer["flError"], True)
        missing = "there is no such file"
        self.assertEqual(answer["errorList"], ["", missing, missing])
        self.assertIn("../anna/rss.xml: there is no such file", answer["message"])

    # by SOAP

    def test_by_soap(self) -> None:
        who = {"email": "dave", "password": PASSWORD}
        action = "/xmlStorageSystem"
        answer = self.house.soap("registerUser", {**who, "name": "", "clientPort": "80"}, action)
        self.assertEqual((answer["flError"], answer["usernum"]), (False, "dave"))
        files = {"relativepathList": ["rss.xml", "a.txt"], "fileTextList": [a_feed().decode(), "x"]}
        answer = self.house.soap("saveMultipleFiles", {**who, **files}, action)
        self.assertEqual(answer["urlList"], [URL, f"{FOLDER}a.txt"])
        answer = self.house.soap("getServerCapabilities", who, action)
        self.assertEqual(answer["yourUpstreamFolderUrl"], FOLDER)
        files = {"relativepathList": ["a.txt"]}
        answer = self.house.soap("deleteMultipleFiles", {**who, **files}, action)
        self.assertEqual(answer["flError"], False)
        answer = self.house.soap("getServerCapabilities", {"email": "dave"}, action)
        self.assertEqual(answer["flError"], True)


class OpenRegistrationTests(StorageSystemTestCase):
    options = HostingOptions(open_registration=True)

    def test_strangers_register_and_save(self) -> None:
        answer = self.registered("Ewa@example.org", "Ewa K.", "another horse")
        expected = {"flError": False, "message": "Welcome, ewa!", "usernum": "ewa"}
        self.assertEqual(answer, expected)
        files = (["rss.xml"], [a_feed().decode()])
        answer = self.call("saveMultipleFiles", "ewa", "another horse", *files)
        self.assertEqual(answer["urlList"], [f"{BASE}/ewa/rss.xml"])
        found = self.successResultOf(self.house.store.stored_password("ewa"))
        assert found is not None
        self.assertFalse(found.account.is_admin)

    def test_refused(self) -> None:
        for email, password, said in (
            ("dave", "another horse", "is taken"),
            ("admin", "another horse", "reserved"),
            ("ewa", "short", "too short"),
            ("not a name", "another horse", "cannot be a name"),
        ):
            answer = self.registered(email, "", password)
            self.assertIs(answer["flError"], True)
            self.assertIn(said, answer["message"])


class PlainTests(StorageSystemTestCase):
    def test_over_plain_http(self) -> None:
        document = xmlrpc.client.dumps(("dave", PASSWORD), "xmlStorageSystem.getServerCapabilities")
        headers = {"Content-Type": "text/xml"}
        answer = self.house.ask("POST", "/RPC2", document.encode(), headers, "198.51.100.9")
        self.assertIn("over HTTPS only", answer.text)


class AliasTests(HostingTestCase):
    def test_without_the_front_door_for_rsscloud(self) -> None:
        alone = make_hosting(HostingOptions(), evolve(self.house.parts, running=frozenset()))
        for app, aliases in ((self.house.app, ()), (alone, ("/xmlStorageSystem",))):
            found = [door.soap_services() for door in app.front_doors]
            self.assertEqual([one.aliases for many in found for one in many], [(), aliases])
        self.assertEqual(self.house.get(PATH).status, 404)
