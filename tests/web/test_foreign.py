"""The explorer in Chromium behind nginx, over plain http under a host name; other sites; hostile names."""

import asyncio
import csv
import io
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp.test_utils import unused_port
from attrs import evolve

from asyncfin import Client, MemoryCache
from asyncfin.sandbox import Sandbox
from asyncfin.web import explorer
from tests.generate import generate
from tests.web.test_browser import cells, fixture, holds, pytestmark, uvicorn

__all__ = ["pytestmark"]

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
ROW = "Revenue/annual.consolidated/company=consolidated"
CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log crit;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        server_name figures.example;
        location /explore/ {{
            proxy_pass http://127.0.0.1:{behind}/;
            proxy_set_header Host $http_host;
        }}
    }}
    server {{
        listen 127.0.0.1:{port};
        server_name evil.example;
        default_type text/html;
        location / {{ return 200 "<!doctype html><title>Another site</title>"; }}
    }}
}}
"""


class Counted:
    """An ASGI app that notes each POST and its status."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.posts: list[tuple[str, int]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start" and scope["method"] == "POST":
                self.posts.append((scope["path"], message["status"]))
            await send(message)

        await self._app(scope, receive, noted)


@asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncIterator[int]:
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", **options))
    task = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def browsing(chromium: Any, allowed: str, **options: Any) -> AsyncIterator[Any]:
    """Give a tab in which nothing runs that the page did not bring, and no other host is asked."""
    faults: list[str] = []
    page = await chromium.new_page(reduced_motion="reduce", **options)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: said.type == "error" and faults.append(said.text))

    async def dismiss(dialog: Any) -> None:
        faults.append(f"dialog {dialog.message}")
        await dialog.dismiss()

    page.on("dialog", dismiss)

    def check(sent: Any) -> None:
        if not sent.url.startswith((allowed, "blob:")):
            faults.append(f"asked {sent.url}")

    page.on("request", check)
    page.faults = faults
    yield page
    await page.close()
    assert faults == []


@fixture
async def proxied(tmp_path: Path) -> AsyncIterator[tuple[str, Counted, Sandbox]]:
    """Serve the explorer at a sub-path of a host name, over plain http, by a real nginx."""
    if NGINX is None:
        pytest.skip("nginx is not installed")
    async with (
        Sandbox.demo() as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=3600) as client,
    ):
        app = Counted(explorer(client, sandbox.names, hosts=["figures.example"]))
        async with serving(app, root_path="/explore") as behind:
            port = unused_port()
            file = tmp_path / "nginx.conf"
            file.write_text(CONFIGURATION.format(folder=tmp_path, port=port, behind=behind))
            nginx = await asyncio.create_subprocess_exec(
                NGINX, "-p", tmp_path, "-c", file, stderr=subprocess.DEVNULL
            )
            try:
                async with asyncio.timeout(20):
                    while True:
                        try:
                            _, writer = await asyncio.open_connection("127.0.0.1", port)
                        except OSError:
                            await asyncio.sleep(0.02)
                        else:
                            writer.close()
                            break
                yield f"http://figures.example:{port}/explore", app, sandbox
            finally:
                nginx.terminate()
                await nginx.wait()


async def test_sub_path_behind_nginx_by_keyboard(
    proxied: tuple[str, Counted, Sandbox], chromium: Any
) -> None:
    """Choose, compare, see, compute, download, come back: over http under a host name, without a mouse."""
    # Seconds of real time: nginx and a browser start, and react by their own clocks.
    base_url, app, sandbox = proxied
    async with browsing(chromium, base_url, viewport={"width": 1280, "height": 900}) as tab:

        async def tab_to(selector: str) -> None:
            for _ in range(40):
                if await tab.evaluate("selector => document.activeElement.matches(selector)", selector):
                    assert (
                        await tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
                    )
                    return
                await tab.keyboard.press("Tab")
            raise AssertionError(f"{selector} is not within 40 tab stops")

        await tab.goto(f"{base_url}/")
        await tab_to(f'a[href$="{sandbox.entities[0]}"]')
        await tab.keyboard.press("Enter")
        # Over plain http the browser does not say whose link it was: a button reads the catalogue.
        await tab.wait_for_selector("#read")
        await tab_to("#read")
        await tab.keyboard.press("Enter")
        await tab.wait_for_selector(".tree")
        await tab_to("#search")
        async with tab.expect_response("**/series"):
            await tab.keyboard.type("revenue annual company")
        await tab.wait_for_selector("#series .note:has-text('match')")
        await tab_to(".tree input")
        await tab.keyboard.press("Space")
        await tab_to("[name=rule]")
        await tab_to("[name=last]")
        await tab.keyboard.press("Control+A")
        await tab.keyboard.type("4")
        await tab_to("[name=with]")
        await tab.keyboard.press("Space")
        await tab.wait_for_selector("#cost strong")
        await tab_to("#ask")
        await tab.keyboard.press("Enter")
        await tab.wait_for_selector(".scroll tbody td")
        assert await tab.evaluate("document.activeElement.id") == "answer"
        assert await tab.inner_text("h1") == "Apple, NVIDIA"
        shown = await cells(tab)
        assert len(shown) == 2
        await tab.evaluate("document.getElementById('ask').focus()")
        await tab_to("[name=unit]")
        await tab.keyboard.press("ArrowDown")
        await holds(tab, "document.querySelector('.viewed').textContent.includes('thousands')")
        grown = await cells(tab)
        assert grown != shown
        await tab_to("#csv")
        async with tab.expect_download() as download:
            await tab.keyboard.press("Enter")
        text = (await (await download.value).path()).read_text()
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [row["entity_name"] for row in rows] == ["Apple", "NVIDIA"]
        filled = [[bool(number) for number in list(row.values())[-4:]] for row in rows]
        assert filled == [[cell != "·" for cell in line] for line in shown]
        sent, url = len(sandbox.log), tab.url
        await tab.goto(f"{base_url}/")
        await tab_to("#recent a")
        await tab.keyboard.press("Enter")
        await tab.wait_for_selector(".scroll tbody td")
        assert await cells(tab) == grown
        assert tab.url == url
        await tab_to(".scroll")
        await tab_to(".code summary")
        await tab.keyboard.press("Enter")
        assert "Client.from_env()" in await tab.inner_text("#python")
        assert len(sandbox.log) == sent
    assert {status for _, status in app.posts} == {200}


SPENDING = """
async ([target, body]) => {
    const form = new URLSearchParams(body);
    const ways = [
        { mode: "no-cors", body: form },
        { mode: "no-cors", credentials: "include", body: String(form) },
        { mode: "no-cors", referrerPolicy: "no-referrer", body: form },
    ];
    for (const way of ways) await fetch(target, { method: "POST", ...way }).catch(() => {});
    for (const sandboxed of [false, true]) {
        const frame = document.createElement("iframe");
        if (sandboxed) frame.sandbox = "allow-forms allow-scripts";
        frame.name = `sink${sandboxed}`;
        const sending = document.createElement("form");
        Object.assign(sending, { method: "post", action: target, target: frame.name });
        for (const [name, value] of form) {
            sending.append(Object.assign(document.createElement("input"), { name, value }));
        }
        if (sandboxed) {  // whose Origin is null
            sending.removeAttribute("target");
            frame.srcdoc = sending.outerHTML + "<script>document.forms[0].submit()</" + "script>";
            document.body.append(frame);
            await new Promise((done) => setTimeout(done, 500));
        } else {
            document.body.append(frame, sending);
            const loaded = new Promise((done) => frame.addEventListener("load", done, { once: true }));
            sending.submit();
            await Promise.race([loaded, new Promise((done) => setTimeout(done, 2000))]);
        }
    }
    await new Promise((done) => {
        const image = new Image();
        image.onload = image.onerror = done;
        image.src = target + "?" + form;
    });
}
"""


async def test_another_site_spends_no_request(proxied: tuple[str, Counted, Sandbox], chromium: Any) -> None:
    """Real forms, fetches and images of another site in a real browser: all arrive, and all are refused."""
    base_url, app, sandbox = proxied
    body = {"series": ROW, "rule": "annual", "last": "3"}
    async with browsing(chromium, "http://") as tab:
        for fragment in ("answer", "series", "cost"):
            app.posts.clear()
            await tab.goto(base_url.replace("figures.", "evil.").replace("/explore", "/"))
            target = f"{base_url}/company/{sandbox.entities[0]}/{fragment}"
            await tab.evaluate(SPENDING, [target, body])
            assert len(app.posts) >= 5, app.posts
            assert {status for _, status in app.posts} == {403}
        tab.faults.clear()  # the browser reports what was refused
    assert not sandbox.log


HOSTILE = {
    "markup": "<script>alert(1)</script><img src=//evil.example/x onerror=alert(2)>",
    "attributes": '"\' onmouseover=alert(3) autofocus onfocus=alert(4) x="',
    "template": "{{7*7}}${alert(5)}<svg/onload=alert(6)>hx-get=/",
    "right to left": "\u202e\u05d0\u05d1\u05d2 \u0645\u0631\u062d\u0628\u0627 123",
    "long": "x" * 300,
    "long words": "Revenue of a Company " * 15,
}


def hostile(name: str, number: int) -> Any:
    """Return a dataset in which everything that is shown is hostile."""
    dataset = generate(number, series=8, publications=1)
    (made,) = dataset.publications
    made = evolve(made, name=name)
    for group in made.groups:
        group["name"] = name
        for series in group["series"]:
            series["label"] = series["description"] = name
    for scopes in made.scope_groups:
        scopes["name"] = name
        for scope in scopes["scopes"]:
            scope["name"] = scope["description"] = name
    return evolve(dataset, name=name, publications=(made,))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
async def test_hostile_names_break_nothing(name: str, chromium: Any) -> None:
    """In lists, tables, charts, links and downloads, at 360 pixels."""
    datasets = [hostile(name, number) for number in (1, 2)]
    async with (
        Sandbox(*datasets) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=3600) as client,
        serving(explorer(client, dict.fromkeys(sandbox.entities, name))) as port,
        browsing(chromium, f"http://127.0.0.1:{port}", viewport={"width": 360, "height": 740}) as tab,
    ):

        async def fits() -> None:
            assert await tab.evaluate("document.documentElement.scrollWidth") <= 360
            assert (
                await tab.evaluate("document.querySelectorAll('img, svg, [onload], [onerror]').length") == 0
            )

        await tab.goto(f"http://127.0.0.1:{port}/")
        await fits()
        await tab.click(f'a[href$="{sandbox.entities[0]}"]')
        await tab.wait_for_selector(".tree")
        await fits()
        await tab.locator(".tree input[type=checkbox]").first.check()
        await tab.locator("#compared input").first.check()
        await tab.select_option("[name=rule]", "all")
        await tab.click("#ask")
        await tab.wait_for_selector("#answer .scroll, #answer [role=alert]")
        await fits()
        if await tab.locator(".chart canvas").count():
            async with tab.expect_download():
                await tab.click("#csv")
        await tab.goto(f"http://127.0.0.1:{port}/")
        await tab.wait_for_selector("#recent a")
        await fits()
        # Of a text in the form that no catalogue has, on the page and in its title.
        query = urlencode({"series": name, "search": name[:150], "start": name, "with": sandbox.entities[1]})
        await tab.goto(f"http://127.0.0.1:{port}/company/{sandbox.entities[0]}?{query}")
        await fits()
