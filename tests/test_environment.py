"""What a row says of where it was made, and what it does not."""

import getpass
from pathlib import Path

from gpubench.measuring.environment import without_names


def test_a_user_without_a_name_takes_nothing_away(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nobody)
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert without_names("OSError: /data/a.bin is not there") == "OSError: /data/a.bin is not there"


def test_a_home_becomes_a_tilde(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "marie")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/marie"))
    assert without_names("/home/marie/data of marie") == "~/data of USER"
