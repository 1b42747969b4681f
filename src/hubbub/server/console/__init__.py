"""The console: pages for people, rendered by the server, which work without JavaScript."""

from hubbub.server.console.routes import make_console_routes

__all__ = ["make_console_routes"]
