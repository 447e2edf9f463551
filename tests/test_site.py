"""The manuals of several versions in one place: ``make site``, on small manuals."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from lxml import html
from twisted.trial.unittest import SynchronousTestCase

from release import site

TOP = Path(__file__).parents[1]

PYPROJECT = '[project]\nname = "rsscloud-broker"\nversion = "{}"\n'


class SiteTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.top = Path(self.mktemp()).absolute()
        shutil.copytree(TOP / "docs" / "_templates", self.top / "docs" / "_templates")
        self.site = self.top / "site"

    def write(self, version: str, *pages: str) -> None:
        """Write the source of a version, with a module that its manual imports."""
        (self.top / "pyproject.toml").write_text(PYPROJECT.format(version))
        (self.top / "here.py").write_text(f"VERSION = '{version}'\n")
        docs = self.top / "docs"
        (docs / "conf.py").write_text(
            "from here import VERSION\n"
            "html_theme = 'furo'\ntemplates_path = ['_templates']\nproject = VERSION\n"
        )
        for old in docs.rglob("*.rst"):
            old.unlink()
        for page in ("index", *pages):
            file = docs / f"{page}.rst"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f":orphan:\n\n{page}\n=========\n\nOf |release|, {version}.\n")

    def git(self, *words: str) -> None:
        who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
        subprocess.run(["git", "-C", self.top, *who, *words], check=True, capture_output=True)

    def release(self, version: str, *pages: str) -> None:
        self.write(version, *pages)
        self.git("add", "--all", ".", ":!site")
        self.git("commit", "--message", version)
        self.git("tag", version)

    def page(self, path: str) -> html.HtmlElement:
        return html.fromstring((self.site / path).read_bytes())

    def listed(self, path: str) -> list[tuple[str, str, bool]]:
        """The versions in a page: the text and target of each link, and whether it is marked."""
        links = self.page(path).findall(".//aside//li/a[@class='reference internal']")
        return [
            (link.text or "", link.get("href", ""), link.get("aria-current") == "page")
            for link in links
        ]

    def test_two_releases_and_what_comes_next(self) -> None:
        self.git("init", "--quiet")
        self.release("1.9.0", "tour", "only/old")
        self.release("1.10.0", "tour", "only/new")
        self.write("1.10.0", "tour", "only/new", "next")
        with (self.top / "docs" / "tour.rst").open("a") as tour:
            tour.write("News.\n")
        names = ["development", "1.10.0", "1.9.0"]
        self.assertEqual(site.build(self.top, self.site), names)
        for current in names:
            for page, up in (("tour", "../"), ("only/old", "../../"), ("only/new", "../../")):
                if (self.site / current / "_sources" / f"{page}.rst.txt").exists():
                    self.assertEqual(
                        self.listed(f"{current}/{page}.html"),
                        [(each, f"{up}{each}/{page}.html", each == current) for each in names],
                    )
        # Each is of its own source, and no link of a list leads nowhere.
        for current, text in (("1.9.0", "1.9.0, 1.9.0."), ("development", "development, 1.10.0.")):
            self.assertIn(f"Of {text}", self.page(f"{current}/tour.html").text_content())
        for page, target in (
            ("index.html", "1.10.0/index.html"),
            ("1.9.0/next.html", "index.html"),
            ("1.9.0/only/new.html", "../index.html"),
            ("1.10.0/only/old.html", "../index.html"),
        ):
            link = self.page(page).find(".//a")
            self.assertEqual(link is not None and link.get("href"), target)

    def test_the_release_itself(self) -> None:
        self.git("init", "--quiet")
        self.release("1.0.0")
        self.git("tag", "of-somebody-2.0.0")
        self.assertEqual(site.build(self.top, self.site), ["1.0.0"])
        self.assertEqual(self.listed("1.0.0/index.html"), [("1.0.0", "../1.0.0/index.html", True)])

    def test_without_a_repository_of_its_own(self) -> None:
        """As the source distribution, which may be inside the repository of somebody else."""
        self.git("init", "--quiet")
        self.release("3.0.0")
        (self.top / ".git").rename(self.top.parent / ".git")
        self.addCleanup(shutil.rmtree, self.top.parent / ".git")
        self.write("1.0.0")
        self.assertEqual(site.build(self.top, self.site), ["1.0.0"])
        self.assertTrue((self.site / "1.0.0" / "index.html").exists())
