"""Scripts by name: the script file. Pure."""

from collections.abc import Mapping

import msgspec

from .script import Script, ScriptError, read_script

PLAIN = Script()
"""The script of a request that asks for none: eight tokens, at once."""

DEMO = Script(prefill=180, first_token=20, gap=25, tokens=24)
"""What `ttft simulate` plays without a script file: slow enough to be seen."""


class Book:
    """Scripts by model name; "*" is for every other model."""

    def __init__(self, scripts: Mapping[str, Script] | None = None) -> None:
        self._scripts = dict(scripts or {})

    @property
    def default(self) -> Script:
        """The script for models without one of their own."""
        return self._scripts.get("*", PLAIN)

    def find(self, model: str | None) -> Script:
        """The script for a model.

        `sim-<name>` asks for the script `<name>` by name. Raises `ScriptError` when there is no
        such script, so that a typing error does not go unnoticed.
        """
        scripts = self._scripts
        if model is not None and model in scripts:
            return scripts[model]
        if model is not None and model.startswith("sim-"):
            name = model.removeprefix("sim-")
            if name in scripts:
                return scripts[name]
            raise ScriptError(
                f"no script is named {name!r}; there are: {', '.join(scripts) or '-'}"
            )
        return self.default


def read_book(source: "str | bytes | Mapping[str, object]") -> dict[str, Script]:
    """The scripts of a file: one JSON object of name to script. Raises `ScriptError`."""
    if isinstance(source, bytes | str):
        try:
            source = msgspec.json.decode(source)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ScriptError(f"not JSON: {error}") from None
    if not isinstance(source, Mapping):
        raise ScriptError("a script file is one JSON object of name to script")
    scripts = {}
    for name, value in source.items():
        if not isinstance(value, str | Mapping):
            raise ScriptError(f"{name}: not a script")
        try:
            scripts[name] = read_script(value)
        except ScriptError as error:
            raise ScriptError(f"{name}: {error}") from None
    return scripts
