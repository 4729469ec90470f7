"""What a page of another site may not do through the browser of somebody who can reach the exporter.

Browsers say themselves what a request is for (Fetch Metadata, https://www.w3.org/TR/fetch-metadata/) and which page sends it (Origin).
Programs that scrape say neither, and are asked for nothing. The names in Host are not judged: an exporter is reached by many.
"""

from __future__ import annotations

from llm_serving_exporter.web.exchange import Request, Response, plain

_SAFE_METHODS = ("GET", "HEAD")


def refuse_script(request: Request) -> Response | None:
    """The answer to what a script or a form of some page asks for; None for everything else.

    Pages of the exporter have neither. Where the name of another site has been pointed here (DNS rebinding), the scripts of that site look
    as if they were ours, so that it does not matter whose they say they are.
    """
    is_script = request.headers.get("sec-fetch-dest", "").lower() == "empty" or "origin" in request.headers
    is_browser = is_script or "sec-fetch-site" in request.headers
    if is_browser and request.method not in _SAFE_METHODS:
        return plain(403, "A browser asks for this: no page of the exporter does. Use a program, such as curl.")
    if is_script:
        return plain(
            403,
            "A script in a browser asks for this: pages of the exporter have none. Open it as a page, or use a program.",
        )
    return None
