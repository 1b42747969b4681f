"""Visits the console in this process as a browser without JavaScript would: cookies, forms, redirects."""

import asyncio
import re
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin

import httpx

from hubbub.server.app import make_app
from server.hospital import PASSWORD

ORIGIN = "https://localhost"


class _Forms(HTMLParser):
    """The forms of a page with their fields, and its links."""

    def __init__(self):
        super().__init__()
        self.forms, self.links, self._form, self._area, self._select = [], [], None, None, None

    def handle_starttag(self, tag, attributes):
        stated = dict(attributes)
        if tag == "a":
            self.links.append(stated.get("href", ""))
        if tag == "form":
            self._form = {"action": stated["action"], "fields": {}, "buttons": []}
            self.forms.append(self._form)
        if self._form is None:
            return
        if tag == "input" and stated.get("type") != "checkbox":
            self._form["fields"][stated["name"]] = stated.get("value", "")
        if tag == "button":
            self._form["buttons"].append((stated.get("name"), stated.get("value")))
        if tag == "textarea":
            self._area = stated["name"]
            self._form["fields"][self._area] = ""
        if tag == "select":
            self._select = stated["name"]
        if tag == "option" and self._select and "selected" in stated:
            self._form["fields"][self._select] = stated["value"]

    def handle_data(self, data):
        if self._area is not None:
            self._form["fields"][self._area] += data

    def handle_endtag(self, tag):
        if tag == "textarea":
            fields = self._form["fields"]
            fields[self._area] = fields[self._area].removeprefix("\n")
            self._area = None
        if tag == "form":
            self._form = None
        if tag == "select":
            self._select = None


class Browser:
    def __init__(self, service, user=None, routes=()):
        self.app = make_app(service, routes)
        self.cookies = {}
        self.page = None
        if user is not None:
            self.get("/sign-in")
            self.submit(0, user=user, password=PASSWORD)
            assert self.page.status_code == 200, self.page.text

    def send(self, method, path, headers=None, content=None, *, follow=True):
        async def send():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, timeout=30) as client:
                jar = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
                stated = {"accept": "text/html", **({"cookie": jar} if jar else {}), **(headers or {})}
                return await client.request(method, path, headers=stated, content=content)

        self.page = asyncio.run(send())
        for text in self.page.headers.get_list("set-cookie"):
            name, _, value = text.split(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        if follow and self.page.status_code == 303:
            return self.get(self.page.headers["location"])
        return self.page

    def get(self, path, **options):
        self.path = path
        return self.send("GET", path, **options)

    def post(self, path, fields, *, headers=None, follow=True):
        stated = {"content-type": "application/x-www-form-urlencoded", "origin": ORIGIN, **(headers or {})}
        stated = {name: value for name, value in stated.items() if value is not None}
        return self.send("POST", path, stated, urlencode(fields).encode(), follow=follow)

    @property
    def parsed(self):
        parser = _Forms()
        parser.feed(self.page.text)
        return parser

    def find_form(self, which):
        """The form at an address, or that with a number among those of the page, but for signing out."""
        forms = [form for form in self.parsed.forms if form["action"] != "/sign-out"]
        if isinstance(which, int):
            return forms[which]
        return next(form for form in forms if form["action"] == which)

    def submit(self, which, *, follow=True, **fields):
        """Fill a form of the page in, and send it."""
        form = self.find_form(which)
        return self.post(urljoin(self.path, form["action"]), {**form["fields"], **fields}, follow=follow)

    @property
    def csrf(self):
        return re.search(r'name="csrf" value="([^"]+)"', self.page.text)[1]
