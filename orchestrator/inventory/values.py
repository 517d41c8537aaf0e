"""The values of the inventory file: what each may be, and the sentence that says what is wrong.

Every type is a pydantic annotation that checks a value and carries its JSON Schema. Where a text
is wanted a number will do, exactly as it was written.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sized
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from orchestrator.inventory.model import NONE

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_CONTAINER = r"[a-zA-Z0-9][a-zA-Z0-9_.-]+"  # as Docker has it
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_LIBRARY = r"([A-Za-z_][A-Za-z0-9_]*=)?(mcoplib|vllm|sgl_kernel|/.+)"
HOST_NAME = re.compile(_NAME)
CONTAINER_NAME = re.compile(_CONTAINER)
SECRET_KEY = re.compile(
    r"(?i)(?:^|_)(?:password|passwd|passphrase|secret|token|api_key|access_key|private_key)$"
)
_SECRET_ENV = re.compile(
    r"(?i)(?:^|_)(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|(?:API|ACCESS|SECRET|PRIVATE)_KEY"
    r"|(?:AUTH|ACCESS|API|HF|HUB|GITHUB|GITLAB)_TOKEN)$|^TOKEN$"
)
# A smaller peak is in another unit; the harness has the same limits.
_LEAST_RATE, _MOST_RATE = 1e9, 1e21
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _written(value: Any) -> Any:
    """Text, or a number exactly as it was written."""
    if isinstance(value, bool):
        raise ValueError(
            f'true and false are no text here, put what is meant in quotes: "{str(value).lower()}"'
        )
    if isinstance(value, (int, float)):
        return getattr(value, "text", str(value))
    return value


def _one_line(value: str) -> str:
    if not value:
        raise ValueError("it is empty, remove the line or give it a value")
    if _CONTROL.search(value):
        raise ValueError("it holds a line break or a control character")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("it holds a NUL character")
    return value


def _no_dash(value: str) -> str:
    if value.startswith("-"):
        raise ValueError("it starts with a dash and would be taken for an option")
    return value


def _no_space(value: str) -> str:
    if any(char.isspace() or char in "/@" for char in value):
        raise ValueError("it holds a space, a slash or an @")
    return value


def _absolute_or_none(value: str) -> str:
    return value if value == NONE else _absolute(value)


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("it has to be an absolute path on the target, starting with a slash")
    return value.rstrip("/") or "/"


def _path_entry(value: str) -> str:
    if ":" in value:
        raise ValueError("it holds a colon, write every folder as a list item of its own")
    return value


def _below(value: str) -> str:
    if value.startswith("/") or ".." in value.split("/"):
        raise ValueError("it has to lie below the workdir: relative and without `..`")
    return value.rstrip("/")


def _container(value: str) -> str:
    if value != NONE and value.lower() == NONE:
        raise ValueError("write it in small letters: none")
    if not CONTAINER_NAME.fullmatch(value):
        raise ValueError(
            "it is no name Docker gives to a container: letters, digits, `_`, `.` and `-`, at "
            "least two, and a letter or digit first"
        )
    return value


def _gpu(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9:._/-]*", value):
        raise ValueError("it is neither a GPU index, nor a UUID, nor a PCI bus id")
    return value


def _library(value: str) -> str:
    if not re.fullmatch(_LIBRARY, value):
        raise ValueError(
            "it has to be mcoplib, vllm, sgl_kernel or the absolute path of a shared object, "
            "for one namespace alone with `NAMESPACE=` before it"
        )
    return value


def _env_name(value: str) -> str:
    if not re.fullmatch(_ENV_NAME, value):
        raise ValueError("it is no name of an environment variable: letters, digits and `_`")
    if _SECRET_ENV.search(value):
        raise ValueError("secrets do not belong into the inventory, set it in the env script")
    return value


def _option_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", value):
        raise ValueError("it is no OpenSSH option, write `Option: value` as in ssh_config(5)")
    if SECRET_KEY.search(value):
        raise ValueError("secrets do not belong into the inventory, use ssh-agent")
    return value


def _words(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise ValueError(f"its quotes do not match ({error}), or write it as a list") from None
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, (str, int, float)) else value


def some(value: Sized) -> Any:
    """A list or mapping with at least one item."""
    if not value:
        raise PydanticCustomError("empty", "it is empty")
    return value


def empty(value: Any) -> Any:
    """A key with nothing after it is an empty mapping, as when all below is commented out."""
    return {} if value is None else value


def _seconds(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("it has to be a number of seconds, without a unit")
    if not math.isfinite(value) or value <= 0 or value > 10**8:
        raise ValueError("it has to be a number of seconds above 0")
    return float(value)


def _seconds_or_never(value: Any) -> Any:
    return None if value == NONE else _seconds(value)


def _rate(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("it has to be a number, such as 2.0e+12")
    if not _LEAST_RATE <= value <= _MOST_RATE:
        raise ValueError(
            "it has to be in bytes or operations a second, without tera or giga: 2.0e+12 for 2 TB/s"
        )
    return float(value)


def _model(value: str) -> str:
    if not value.strip() or _CONTROL.search(value):
        raise ValueError("it is no name of a GPU model such as C500")
    return value


def _port(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise ValueError("it has to be a number from 1 to 65535")
    return int(value)


def _retries(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 20:
        raise ValueError("it has to be a number from 0 to 20")
    return int(value)


_TEXT_JSON = WithJsonSchema({"type": ["string", "number"]})
_SECONDS_JSON = {"type": "number", "exclusiveMinimum": 0}

Raw = Annotated[str, BeforeValidator(_written), AfterValidator(_no_nul), _TEXT_JSON]
Text = Annotated[str, BeforeValidator(_written), AfterValidator(_one_line), _TEXT_JSON]
Word = Annotated[Text, AfterValidator(_no_dash), _TEXT_JSON]
Address = Annotated[Word, AfterValidator(_no_space), _TEXT_JSON]
Folder = Annotated[
    Text, AfterValidator(_absolute), WithJsonSchema({"type": "string", "pattern": "^/"})
]
FolderOrNone = Annotated[
    Text,
    AfterValidator(_absolute_or_none),
    WithJsonSchema({"type": "string", "pattern": "^(/|none$)"}),
]
PathEntry = Annotated[
    Folder, AfterValidator(_path_entry), WithJsonSchema({"type": "string", "pattern": "^/[^:]*$"})
]
Below = Annotated[Text, AfterValidator(_below), WithJsonSchema({"type": "string"})]
ContainerName = Annotated[
    Text,
    AfterValidator(_container),
    WithJsonSchema({"type": "string", "pattern": f"^{_CONTAINER}$"}),
]
Gpu = Annotated[Text, AfterValidator(_gpu), WithJsonSchema({"type": ["string", "integer"]})]
_LIBRARY_JSON = {"type": "string", "pattern": f"^{_LIBRARY}$"}
Libraries = Annotated[
    tuple[Annotated[Text, AfterValidator(_library)], ...],
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [_LIBRARY_JSON, {"type": "array", "items": _LIBRARY_JSON}]}),
]
EnvName = Annotated[str, AfterValidator(_env_name)]
OptionName = Annotated[str, AfterValidator(_option_name)]
Seconds = Annotated[float, BeforeValidator(_seconds), WithJsonSchema(_SECONDS_JSON)]
SecondsOrNever = Annotated[
    float | None,
    BeforeValidator(_seconds_or_never),
    WithJsonSchema({"anyOf": [_SECONDS_JSON, {"const": NONE}]}),
]
Rate = Annotated[
    float,
    BeforeValidator(_rate),
    WithJsonSchema({"type": "number", "minimum": _LEAST_RATE, "maximum": _MOST_RATE}),
]
Model = Annotated[str, AfterValidator(_model)]
Port = Annotated[
    int,
    BeforeValidator(_port),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 65535}),
]
Retries = Annotated[
    int,
    BeforeValidator(_retries),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 20}),
]
Command = Annotated[
    tuple[Text, ...],
    BeforeValidator(_words),
    AfterValidator(some),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Names = Annotated[
    tuple[Text, ...],
    BeforeValidator(_listed),
    AfterValidator(some),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


def named(value: Any) -> Any:
    return {"name": value} if not isinstance(value, (dict, list)) else value
