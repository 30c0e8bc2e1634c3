"""Where services are and with which tokens: ~/.config/headrace/profiles.json, readable by its owner only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from .. import typed

LOCAL_URL = "http://127.0.0.1:8700"


class Unusable(Exception):
    """It cannot be done like this; the text says what to change."""


@dataclass(frozen=True)
class Access:
    """A service and a token for it, and where they were read."""

    url: str
    token: str
    source: str


class Profile(msgspec.Struct):
    """A stored service."""

    url: str
    token: str


class _Content(msgspec.Struct):
    default: str | None = None
    profiles: dict[str, Profile] = {}


@dataclass
class Profiles:
    """The file. `default` is used where none is named."""

    path: Path
    default: str | None = None
    profiles: dict[str, Profile] = field(default_factory=dict)

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Profiles:
        """What the file holds; nothing where there is none. Raises Unusable."""
        path = config_file(environment)
        try:
            content = typed.decoded(path.read_bytes(), _Content)
            return cls(path, content.default, content.profiles)
        except FileNotFoundError:
            return cls(path)
        except (ValueError, OSError) as error:
            raise Unusable(f"{path} cannot be read: {error}. Fix it, or delete it.") from None

    def write(self) -> None:
        """Keep it, in one step, for its owner's eyes only."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self.path.with_suffix(".new")
        text = msgspec.json.format(msgspec.json.encode(_Content(self.default, self.profiles)))
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(text + b"\n")
        draft.replace(self.path)

    def get(self, name: str) -> Access:
        """A profile's service. Raises Unusable."""
        profile = self.profiles.get(name)
        if profile is None:
            names = ", ".join(sorted(self.profiles)) or "none yet: headrace profile add NAME --url URL"
            raise Unusable(f"There is no profile {name}. There are: {names}.")
        return Access(profile.url, profile.token, f"profile {name}")


def config_file(environment: Mapping[str, str]) -> Path:
    """Where the profiles are kept."""
    base = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "headrace" / "profiles.json"


def access(
    profile: str | None, url: str | None, token: str | None, environment: Mapping[str, str] = os.environ
) -> Access:
    """The service that is meant: by options, a named profile, the environment, the default profile; in this order.
    Raises Unusable."""
    profile = profile or environment.get("HEADRACE_PROFILE")
    if profile:
        credentials = Profiles.read(environment).get(profile)
    elif environment.get("HEADRACE_URL") or environment.get("HEADRACE_TOKEN"):
        credentials = Access(
            environment.get("HEADRACE_URL", LOCAL_URL), environment.get("HEADRACE_TOKEN", ""), "environment"
        )
    else:
        profiles = Profiles.read(environment)
        credentials = profiles.get(profiles.default) if profiles.default else Access(LOCAL_URL, "", "default")
    credentials = Access(
        url or credentials.url,
        token or credentials.token,
        "options" if url or token else credentials.source,
    )
    if not credentials.token:
        raise Unusable(
            f"No token for {credentials.url}. Set HEADRACE_TOKEN, or keep it: "
            f"headrace profile add NAME --url {credentials.url}"
        )
    return credentials


def masked(token: str) -> str:
    """A token, recognisable and useless."""
    parts = token.split("_")
    return f"{parts[0]}_{parts[1]}_…" if len(parts) == 3 else "…"
