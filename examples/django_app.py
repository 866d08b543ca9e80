"""A Django backend: the figures of a metric, as JSON, CSV or Arrow.

uvicorn examples.django_app:app --lifespan off

It runs under ASGI; under WSGI each request would have a separate event loop.

ASYNCFIN_ENTITIES has the ids of the companies on offer, separated by blanks.
"""

import asyncio
import os
from functools import cache

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from asyncfin import Annual, AsyncfinError, Client, MemoryCache, Retry, Select, Timeouts
from asyncfin.web import Offer, check_offered, http_error, reply

SECONDS, MAX_AGE = 30, 60
# The companies that visitors may ask for: a container of ids, or an async function.
OFFER: Offer = frozenset(os.environ.get("ASYNCFIN_ENTITIES", "").split())


@cache
def client() -> Client:
    """Return the worker's client, which is made at the first visit: Django has no
    lifespan.
    """
    return Client.from_env(
        cache=MemoryCache(),
        max_age=MAX_AGE,
        retry=Retry(attempts=2),
        timeouts=Timeouts(read=5),
    )


async def values(request: HttpRequest, entity_id: str) -> HttpResponse:
    try:
        await check_offered(entity_id, OFFER)
        select = Select(metric_ids=request.GET.getlist("metric"))
        # Django cancels the view of a visitor who has left, which ends the requests.
        async with asyncio.timeout(SECONDS):
            panel = await client().query(entity_id, select, Annual(last=5))
        status, headers, body = await reply(
            panel,
            accept=request.headers.get("accept"),
            if_none_match=request.headers.get("if-none-match"),
            max_age=MAX_AGE,
        )
    except (AsyncfinError, TimeoutError) as error:
        status, text, headers = http_error(error)
        return HttpResponse(
            text,
            status=status,
            headers=headers,
            content_type="text/plain; charset=utf-8",
        )
    return HttpResponse(body, status=status, headers=headers)


urlpatterns = [path("entities/<entity_id>/values", values)]

if not settings.configured:  # a project has its settings module
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "localhost"])
    django.setup()
app = get_asgi_application()
