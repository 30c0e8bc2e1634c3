"""`headrace profile`: stored services and tokens."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .arguments import Noun
from .profiles import Profile, Profiles, Unusable, masked
from .session import session

app = typer.Typer(cls=Noun, name="profile", help="Stored services and tokens: add, list, use, remove.")
Name = Annotated[str, typer.Argument(help="The profile.", show_default=False)]


@app.command(epilog="Example: headrace profile add prod --url https://queue.example.com")
def add(
    context: typer.Context,
    name: Name,
    at: Annotated[str, typer.Option("--at", help="The service's URL (or --url).")] = "",
) -> None:
    """Store a service. Asks for the token, or reads it from standard input; the first profile is the default."""
    s = session(context)
    url = at or s.url
    if not url:
        raise typer.BadParameter("Say where it is: --url https://…")
    token = s.token or _asked_token().strip()
    if not token:
        raise Unusable("A token is needed: type it, or send it to standard input.")
    profiles = Profiles.read()
    profiles.profiles[name] = Profile(url, token)
    profiles.default = profiles.default or name
    profiles.write()
    s.output.say(f"{name} is kept in {profiles.path}. `headrace doctor --profile {name}` tries it.")


def _asked_token() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Token", hide_input=True, err=True))
    return sys.stdin.readline()


@app.command("list", epilog="Example: headrace profile list")
def list_profiles(context: typer.Context) -> None:
    """List the profiles; tokens are not shown."""
    s, profiles = session(context), Profiles.read()
    rows = []
    for name, profile in sorted(profiles.profiles.items()):
        entry = {"name": name, "url": profile.url, "default": name == profiles.default}
        rows.append((entry, (name, profile.url, masked(profile.token), "*" if entry["default"] else "")))
    s.output.many(("NAME", "URL", "TOKEN", "DEFAULT"), rows, "None yet: headrace profile add NAME --url URL")


@app.command(epilog="Example: headrace profile use prod")
def use(context: typer.Context, name: Name) -> None:
    """Make a profile the default."""
    profiles = Profiles.read()
    profiles.get(name)
    profiles.default = name
    profiles.write()
    session(context).output.say(f"{name} is the default.")


@app.command(epilog="Example: headrace profile remove prod")
def remove(context: typer.Context, name: Name) -> None:
    """Remove a service and its token."""
    profiles = Profiles.read()
    profiles.get(name)
    del profiles.profiles[name]
    if profiles.default == name:
        profiles.default = next(iter(sorted(profiles.profiles)), None)
    profiles.write()
    session(context).output.say(f"{name} is forgotten.")
