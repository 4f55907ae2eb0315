"""The text of XLA_FLAGS, read exactly as XLA reads it: parse, render, merge, and what would go wrong.

The grammar is that of ``xla/parse_flags_from_env.cc``. Blanks (space, tab, CR, LF) separate flags. A value that
begins with a quote right after ``=`` runs to the next such quote; inside double quotes a backslash protects the next
character. The first token that does not begin with ``-`` ends the reading *silently*: every later flag is lost. A text
whose first character is not ``-`` is the name of a file that holds the flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["Flag", "Problem", "ProblemKind", "file_of", "merge", "parse", "problems", "render"]

BLANKS = " \t\r\n"
_NAME = re.compile(r"[-_A-Za-z0-9]*")
_BLANK = re.compile(f"[{BLANKS}]+")
# What word processors and web pages put for "-", "--", quotes and blanks.
_TYPED_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_TYPED_QUOTES = "\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u00ab\u00bb"
_TYPED_BLANKS = "\u00a0\u2007\u202f\u200b\ufeff"
_PLAIN = str.maketrans({**dict.fromkeys(_TYPED_DASHES, "-"), **dict.fromkeys(_TYPED_BLANKS, " ")})
_DASHES = re.compile(f"[-{_TYPED_DASHES}]+")

ProblemKind = Literal["stops", "dash", "equals", "quotes", "comma", "blank", "file"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: its name without dashes, its value with quotes taken off, and the text as it stands.

    `value` None means that there is no ``=`` (a bool that is switched on); "" is an empty value. Flags are equal if
    XLA reads the same, however they are written.
    """

    name: str
    value: str | None
    raw: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in the text that XLA would misread.

    `token`: the offending text. `message`: what XLA makes of it and what was probably meant. `lost`: names of the
    flags that XLA would never see because of it. `fatal`: the process would end, else the loss is silent.
    """

    kind: ProblemKind
    token: str
    message: str
    lost: tuple[str, ...] = ()
    fatal: bool = False


def file_of(text: str) -> str | None:
    """The file that `text` names, or None if `text` holds flags (or nothing) itself.

    XLA opens the whole text, blanks included, so a text of blanks alone is a file name too.
    """
    if not text or text.lstrip(BLANKS).startswith("-"):
        return None
    return text


def parse(text: str) -> tuple[Flag, ...]:
    """The flags that XLA would read from `text`, in order, duplicates kept.

    The file form is followed: the flags are those of the file. Raises OSError if it can't be read (XLA would end the
    process).
    """
    return _scan(_contents(text)).flags


def render(flags: Iterable[Flag]) -> str:
    """The canonical text of `flags`: ``--name=value`` separated by one space, quoted only where needed.

    Raises ValueError for a blank in a value whose name is more than letters, digits, "_" and "-": no text says that.
    """
    return " ".join(_render_one(flag) for flag in flags)


def merge(base: str, changes: Mapping[str, str | None]) -> str:
    """`base` with `changes` (name → value, None removes it), as XLA_FLAGS text.

    Flags that are not named in `changes`, or have the wanted value already, keep their exact text and place. A changed
    flag takes the place of its last occurrence (the one that counts); new ones follow in the order of their names. A
    `base` that needs no change comes back as it is; otherwise one space separates the flags, a file form is replaced
    by the file's flags, and what stands behind a token that ends XLA's reading is left out: it was never read. Raises
    OSError if `base` names a file that can't be read.
    """
    found = _scan(_contents(base)) if changes else _Scan((), "", True)
    last = {flag.name: i for i, flag in enumerate(found.flags)}
    kept = []
    for i, flag in enumerate(found.flags):
        if flag.name not in changes:
            kept.append(flag)
            continue
        wanted = changes[flag.name]
        if i == last[flag.name] and wanted is not None:
            kept.append(flag if flag.value == wanted else Flag(flag.name, wanted))
    added = [Flag(n, v) for n, v in sorted(changes.items()) if n not in last and v is not None]
    if not added and tuple(kept) == found.flags:
        return base
    texts = [flag.raw or _render_one(flag) for flag in kept]
    if kept and not found.closed and kept[-1] is found.flags[-1]:
        texts[-1] = _render_one(kept[-1])  # a quote left open would swallow what follows
    return " ".join([*texts, *(_render_one(flag) for flag in added)])


def problems(text: str) -> tuple[Problem, ...]:
    """Everything in `text` that XLA would misread or refuse for its form; empty if there is nothing.

    Whether a name exists, and whether a value fits its type, only the installed compiler can say.
    """
    if file_of(text) is not None:
        return _file_problems(text)
    return _text_problems(text)


# -- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scan:
    flags: tuple[Flag, ...]
    rest: str  # what stands from the token that ended the reading on
    closed: bool  # False if the last value's quote is never closed


def _contents(text: str) -> str:
    path = file_of(text)
    if path is None:
        return text
    if Path(path).is_dir():
        return ""  # a folder can be opened, and nothing can be read from it: so does XLA
    return Path(path).read_bytes().decode("utf-8", "surrogateescape")


def _scan(text: str) -> _Scan:
    flags: list[Flag] = []
    at, closed = _skip_blanks(text, 0), True
    while at < len(text) and text[at] == "-":
        name_end = _NAME.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string too
        if text[name_end : name_end + 1] == "=" and text[name_end + 1 : name_end + 2] in ("'", '"'):
            value, end, closed = _quoted(text, name_end + 1)
            flags.append(Flag(_plain_name(text[at:name_end]), value, text[at:end]))
        else:
            blank = _BLANK.search(text, name_end)
            end = blank.start() if blank else len(text)
            name, equals, plain = text[at:end].partition("=")
            flags.append(Flag(_plain_name(name), plain if equals else None, text[at:end]))
        at = _skip_blanks(text, end)
    return _Scan(tuple(flags), text[at:], closed)


def _skip_blanks(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _quoted(text: str, at: int) -> tuple[str, int, bool]:
    """The value that begins with the quote at `at`, the index behind it, and whether the quote is closed."""
    quote, value, at = text[at], [], at + 1
    while at < len(text) and text[at] != quote:
        if quote == '"' and text[at] == "\\" and at + 1 < len(text):
            at += 1
        value.append(text[at])
        at += 1
    return "".join(value), min(at + 1, len(text)), at < len(text)


def _plain_name(dashed: str) -> str:
    return dashed.lstrip("-")


def _render_one(flag: Flag) -> str:
    if flag.value is None:
        return f"--{flag.name}"
    value = flag.value
    blank = any(c in BLANKS for c in value)
    if not _NAME.fullmatch(flag.name):  # XLA has no such flag, and takes off no quotes behind such a name
        if blank:
            raise ValueError(f"no text says {flag.name!r} = {value!r}")
    elif blank or value[:1] in ("'", '"'):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        value = f'"{escaped}"' if "'" in value else f"'{value}'"
    return f"--{flag.name}={value}"


# -- complaining -----------------------------------------------------------------------------------------------------


def _file_problems(text: str) -> tuple[Problem, ...]:
    token = text.strip(BLANKS)
    if not token:
        message = "the text is blank but not empty: XLA takes the blanks for a file name and ends the process; unset it"
        return (Problem(kind="blank", token=text, message=message, fatal=True),)
    lost = _names_in(token.strip("\"'" + _TYPED_QUOTES))
    if token[0] in "\"'" + _TYPED_QUOTES:
        message = (
            "the text begins with a quote, so XLA takes all of it for a file name and ends the process; "
            "env-files that are not read by a shell (docker --env-file) keep quotes: write it without"
        )
        return (Problem(kind="quotes", token=token, message=message, lost=lost, fatal=True),)
    if token[0] in _TYPED_DASHES:
        first = _words(token)[0]
        message = f"begins with a typographic dash, so XLA takes the text for a file name; write {_retyped(first)}"
        return (Problem(kind="dash", token=first, message=message, lost=lost, fatal=True),)
    try:
        contents = _contents(text)
    except (OSError, ValueError) as error:
        first = _words(token)[0]
        hint = f"; write --{first}" if re.match(r"xla_\w+(=|$)", first) else ""
        message = (
            f"does not begin with '-', so XLA takes the text for the name of a file with flags, can't read it "
            f"({getattr(error, 'strerror', None) or error}) and ends the process{hint}"
        )
        return (Problem(kind="file", token=token, message=message, lost=lost, fatal=True),)
    if Path(text).is_dir():
        message = (
            "does not begin with '-', so XLA takes the text for the name of a file; it is a folder and holds no flags"
        )
        return (Problem(kind="file", token=token, message=message),)
    return _text_problems(contents)


def _text_problems(text: str) -> tuple[Problem, ...]:
    found = _scan(text)
    complaints = [p for flag in found.flags for p in _flag_problems(flag)]
    if not found.closed:
        flag = found.flags[-1]
        message = "the quote after '=' is never closed: XLA reads all that follows as the value"
        lost = _names_in(flag.value or "")
        complaints.append(Problem(kind="quotes", token=flag.raw, message=message, lost=lost))
    if found.rest:
        complaints.append(_stop_problem(found))
    return tuple(complaints)


def _flag_problems(flag: Flag) -> Iterable[Problem]:
    """What is wrong with one flag that XLA does read."""
    head = flag.raw.partition("=")[0]
    dashes = len(head) - len(head.lstrip("-"))
    if any(c in _TYPED_DASHES for c in head):
        message = f"XLA knows no flag with a typographic dash and ends the process; write {_retyped(flag.raw)}"
        yield Problem(kind="dash", token=flag.raw, message=message, fatal=True)
    elif not flag.name:
        message = "has no name: XLA takes it for an unknown flag and ends the process"
        yield Problem(kind="dash", token=flag.raw, message=message, fatal=True)
    elif dashes != 2:
        count = "one dash" if dashes == 1 else f"{dashes} dashes"
        message = f"begins with {count}: XLA wants two and ends the process; write --{flag.raw.lstrip('-')}"
        yield Problem(kind="dash", token=flag.raw, message=message, fatal=True)
    elif "-" in flag.name:
        name, _, value = flag.name.partition("-")
        hint = f"; write --{name}={value}" if flag.value is None and value else ""
        message = f"XLA's names have no '-', it would end the process at this one{hint}"
        yield Problem(kind="equals" if hint else "dash", token=flag.raw, message=message, fatal=True)
    value = flag.value or ""
    if flag.raw.endswith(value):  # not quoted: the value stands as it is
        yield from _bare_value_problems(flag, value)


def _bare_value_problems(flag: Flag, value: str) -> Iterable[Problem]:
    if value.endswith(",") or ",--" in value:
        message = "a comma does not separate flags, it becomes part of the value; separate flags by blanks"
        yield Problem(kind="comma", token=flag.raw, message=message, lost=_names_in(value.replace(",", " ")))
    if any(c in _TYPED_BLANKS for c in value):
        message = "holds a blank that XLA does not take for one (no-break space, copied from a page?)"
        yield Problem(kind="blank", token=flag.raw, message=message, lost=_names_in(value.translate(_PLAIN)))
    if any(c in _TYPED_QUOTES for c in value) or value.endswith(('"', "'")):
        message = "ends in a quote that XLA takes for part of the value; quotes count only right after '='"
        yield Problem(kind="quotes", token=flag.raw, message=message)


def _stop_problem(found: _Scan) -> Problem:
    """The token that ends the reading, what was probably meant by it, and which flags are lost."""
    token, *later = _words(found.rest)
    before = found.flags[-1] if found.flags else None
    lost = _names_in(" ".join(later))
    kind: ProblemKind = "stops"
    if token[0] in _TYPED_DASHES:
        kind, hint = "dash", f"write {_retyped(token)}"
        lost = (*_names_in(token), *lost)
    elif before and before.value is None and token.startswith("="):
        kind, hint = "equals", f"write --{before.name}={token[1:] or (later[0] if later else '')} without blanks"
    elif before and before.value == "" and before.raw.endswith("="):
        kind, hint = "equals", f"write --{before.name}={token} without a blank"
    elif token.startswith("xla_"):
        hint = f"write --{token}"
        lost = (*_names_in(f"--{token}"), *lost)
    elif before and before.value is None:
        kind, hint = "equals", f"write --{before.name}={token} with '='"
    elif token.startswith("#"):
        hint = "the text can't hold comments"
    elif token.startswith("\\"):
        hint = "a line is not continued by a backslash here; flags may stand on several lines as they are"
    else:
        hint = "remove it"
    losing = f" and loses {', '.join(lost)}" if lost else ""
    message = f"does not begin with '-': XLA stops reading here without a word{losing}; {hint}"
    return Problem(kind=kind, token=token, message=message, lost=lost)


def _words(text: str) -> list[str]:
    return [word for word in _BLANK.split(text) if word]


def _names_in(text: str) -> tuple[str, ...]:
    """Names of the words in `text` that were meant as flags, whatever dashes they have."""
    names = []
    for word in text.split():
        dashes = _DASHES.match(word)
        if dashes and (name := re.split(r"[=\s]", word[dashes.end() :])[0]):
            names.append(name)
    return tuple(names)


def _retyped(token: str) -> str:
    """`token` with the dashes that a keyboard has."""
    name, equals, value = token.partition("=")
    plain = name.translate(_PLAIN).lstrip("-")
    if not equals and "-" in plain:
        plain, equals, value = plain.partition("-")
        equals = "="
    return f"--{plain.replace('-', '_')}{equals}{value}"
