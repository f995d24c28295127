"""Write a page for every public name, from its signature and docstring, when the site is built."""

from __future__ import annotations

import inspect
from typing import Any

import tutelage

PAGE = "reference/api.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the site's files."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=page()))
    return files


def page() -> str:
    """Give the page: one heading a name, with its signature, what it does, and its public methods."""
    parts = ["# Python names\n\nEverything that `import tutelage as tt` offers, written from the code itself.\n"]
    for name in tutelage.__all__:
        value = getattr(tutelage, name)
        if not callable(value):
            continue
        parts.append(f"## `{name}`\n\n```python\ntt.{name}{_signature(value)}\n```\n\n{inspect.getdoc(value) or ''}\n")
        if inspect.isclass(value) and not issubclass(value, BaseException):
            rows = [f"- `{own}{_signature(method)}`: {_first(method)}" for own, method in _methods(value)]
            parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _methods(kind: type) -> list[tuple[str, Any]]:
    found = [(name, getattr(kind, name)) for name in vars(kind) if not name.startswith("_")]
    return [(name, value) for name, value in found if callable(value) and inspect.getdoc(value)]


def _signature(value: Any) -> str:
    try:
        return str(inspect.signature(value)).replace("'", "")
    except (TypeError, ValueError):
        return "(...)"


def _first(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]
