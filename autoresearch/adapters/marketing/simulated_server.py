"""The server of a simulation: `python -m autoresearch.adapters.marketing.simulated_server CAMPAIGN`.

It believes the time that its visitors tell, which no other server does. It prints its port and ends with its stdin.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.live import LiveFolder
from autoresearch.adapters.marketing.site import require_extra
from autoresearch.adapters.marketing.site.pages import CampaignPages
from autoresearch.adapters.marketing.site.settings import SiteSettings
from autoresearch.core import EnvironmentNotReadyError


def main(argv: list[str]) -> int:
    """Serve the campaign in `argv[0]` until stdin ends; return the exit status."""
    try:
        require_extra()
    except EnvironmentNotReadyError as error:
        print(error, file=sys.stderr)
        return 1
    import uvicorn

    from autoresearch.adapters.marketing.site.app import Site

    campaign = Campaign.load(Path(argv[0]))
    settings = SiteSettings(
        goal=campaign.goal.event, holdout=campaign.traffic.holdout, max_events_per_second=1e6, simulated=True
    )
    site = Site(LiveFolder.of(campaign.folder), CampaignPages(campaign), settings)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(site, log_level="warning", access_log=False, lifespan="off", server_header=False)
    server = uvicorn.Server(config)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    server.run(sockets=[listener])
    return 0


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)  # every event is written before its reply, so there is nothing left to do


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
