"""What the store knows to be best for a workload, found by the file's digest, its name, or its program.

A workload's digest is an alias of its program: it says what the file and the modules beside it are, and not what
`build` makes of them. It takes milliseconds; lowering the step, which settles it, takes seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tuner.machine.environment import Environment, mismatches
from tuner.measure.types import UNSETTLED, Estimate, Verdict
from tuner.store.folder import RunFolder, Store
from tuner.store.held import form_of, forms_told, held_of
from tuner.store.reader import Reader, reading
from tuner.store.sources import workload_digest

if TYPE_CHECKING:
    from tuner.store.events import RunStarted

__all__ = ["Answer", "Found", "Question", "look_up", "question_of", "why_none"]

_COLUMNS = """
SELECT r.uid, r.run, r.workload, r.digest, r.program, r.first_program, r.verdict, r.context, r.host, r.log, r.options,
       r.form, r.environment, b.number, b.time, b.variables, v.gain, v.se, v.low, v.high, v.level, v.n, v.control_ms,
       v.best_ms, c.settings, e.identity
FROM tuner_runs r
JOIN tuner_bundles b ON b.uid = r.uid
JOIN tuner_environments e ON e.environment = r.environment
LEFT JOIN tuner_verdicts v ON v.uid = r.uid AND v.chosen
LEFT JOIN tuner_configs c ON c.config = v.config
"""
# A verdict that settles nothing takes nothing back: what came out so counts if there is nothing else.
_UNSETTLED = f"r.verdict IN ({', '.join(repr(verdict.value) for verdict in UNSETTLED)})"
_NEWEST = f"ORDER BY {_UNSETTLED}, r.sealed DESC, b.time DESC LIMIT 1"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """`digest`, `name`: of the workload's file. `program`: what it lowers to, where that was asked. `knobs`: parameters
    of build() that the result was tuned with; None: what was tuned without any goes first. `number`: of one bundle;
    None means the newest that settles something. `previous`: the one before it."""

    digest: str
    name: str
    program: str = ""
    knobs: dict[str, str] | None = None
    number: int | None = None
    previous: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One sealed result. `by`: alias (the file is as it was tuned), program (it lowers to the tuned program), name
    (only the file's name is the same). `settings`: {} for the default. `estimate`: the confirmed gain, or None.
    `variables`: what the bundle emits. `unlike`: what the place has other than the identity, name → (there, here).
    `folder`: the run's, where it lies in this store; else None, and `host` and `log` say where it was taken up.
    `time`: of sealing, seconds since the epoch. `held`: knobs that the run held at one value. `form`: the parameters of
    build() and the arguments, as a shell would read them, that make the workload's file this program. `later`: a run
    that was sealed after it and settled nothing, with its verdict."""

    run: str
    uid: str
    number: int
    by: str
    workload: str
    program: str
    first_program: str
    verdict: Verdict
    settings: dict[str, str]
    estimate: Estimate | None
    control_ms: float | None
    best_ms: float | None
    variables: dict[str, str]
    environment: Environment
    unlike: dict[str, tuple[str, str]]
    objective: str
    time: float
    folder: Path | None
    host: str
    log: str
    held: dict[str, str] = {}
    argv: str = ""
    form: str = ""
    later: tuple[str, Verdict] | None = None

    @property
    def bundle(self) -> Path | None:
        """Where the bundle lies; None if only its record is here."""
        path = None if self.folder is None else RunFolder(path=self.folder).bundle / f"{self.number:04d}"
        return path if path is not None and path.is_dir() else None

    @property
    def whereabouts(self) -> str:
        """Where it is if `bundle` is None, in one clause."""
        if self.folder is not None:
            return f"its bundle isn't in {self.folder}: it was deleted, or only its records were taken in"
        return (
            f"its bundle isn't here: it was sealed on {self.host or 'another machine'}, see {self.log or 'its store'}"
        )


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """`answer` None: there is none. `unfinished`: runs of the workload that have no bundle yet. `forms`: those in which
    it was tuned, if it wasn't in the one that was asked for. `notice`: what the user should know of the database."""

    answer: Answer | None = None
    unfinished: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    notice: str = ""


def question_of(
    workload: Path, *, number: int | None = None, previous: bool = False, knobs: Mapping[str, str] | None = None
) -> Question:
    """What is asked about a workload's file. Raises WorkloadError if it can't be read."""
    asked = None if knobs is None else dict(knobs)
    digest = workload_digest(workload)
    return Question(digest=digest, name=workload.name, number=number, previous=previous, knobs=asked)


def look_up(store: Store, question: Question, *, seen: Mapping[str, str]) -> Found:
    """The newest bundle for the workload that fits the place whose identity is `seen`, as far as that is known; one of
    a run that ended unclear or unstable only where no other did better.

    One for the file as it is goes before one for its program, that before one for a file of its name; one that doesn't
    fit the place comes only if there is no other. Where nothing is asked of the form, the file built as it stands goes
    before any other. Raises StoreError if a server can't be reached.
    """

    def wanted(first: RunStarted) -> bool:
        return first.identity.get("workload") == question.digest or Path(first.workload).name == question.name

    everywhere = bool(question.program)  # a file of any name may lower to it
    with reading(store, wanted=None if everywhere else wanted, workload="" if everywhere else question.name) as reader:
        answer = _answer(reader, store, question, seen)
        runs = () if answer else _unfinished(reader, question)
        forms = () if answer or question.knobs is None else _forms(reader, question)
        return Found(answer=answer, unfinished=runs, forms=forms, notice=reader.notice)


def why_none(found: Found, question: Question, *, store: str) -> str:
    """Why there is no answer in the store that the user calls `store`, in one phrase."""
    if question.number is not None:
        return f"{store} has no bundle {question.number} of {question.name}"
    if question.previous:
        return f"{store} has no bundle of {question.name} before the newest"
    if found.forms:
        return f"not tuned so, only {forms_told(found.forms)}"
    if found.unfinished:
        return f"run {found.unfinished[0]} is unfinished: it has no verdict yet"
    return f"{question.name} was not tuned yet: {store} keeps no run of it"


def _answer(reader: Reader, store: Store, question: Question, seen: Mapping[str, str]) -> Answer | None:
    ways = [("alias", "r.digest = :digest"), ("name", "r.name = :name")]
    if question.program:
        ways.insert(0, ("program", "(r.program = :program OR r.first_program = :program)"))
    elif question.previous or question.number is not None:
        ways = ways[1:]  # going back may well mean going back behind an edit
    values = {"digest": question.digest, "name": question.name, "program": question.program}
    unfit: list[Answer] = []
    for by, condition in ways:
        found = _of_way(reader, store, question, seen, by, condition, values)
        for answer in found:
            if not answer.unlike:
                return answer
        unfit += found
    return unfit[0] if unfit else None


def _of_way(
    reader: Reader,
    store: Store,
    question: Question,
    seen: Mapping[str, str],
    by: str,
    condition: str,
    values: Mapping[str, Any],
) -> list[Answer]:
    """The newest bundle of each environment and form, or the one before the newest that fits: those of the file built
    as it stands first, then those that settled something, then the newest first."""
    where = condition + ("" if question.number is None else " AND b.number = :number")
    used = {n: v for n, v in {**values, "number": question.number}.items() if f":{n}" in where}
    kinds = reader.rows(
        "SELECT DISTINCT r.environment AS environment, r.form AS form FROM tuner_runs r "
        f"WHERE {condition} AND r.environment IS NOT NULL",
        **{n: v for n, v in used.items() if f":{n}" in condition},
    )
    newest = []
    for kind in kinds:
        if question.knobs is not None and held_of(form_of(kind["form"])[0]) != question.knobs:
            continue
        of_kind = f"{where} AND r.environment = :environment AND r.form = :form"
        rows = reader.rows(f"{_COLUMNS} WHERE {of_kind} {_NEWEST}", **used, **kind)
        if rows and question.previous:  # of another run its newest, or an older one of the same run
            before = {"uid": rows[0]["uid"], "time": rows[0]["time"]}
            other = f"{of_kind} AND r.uid <> :uid AND b.time < :time"
            rows = reader.rows(f"{_COLUMNS} WHERE {other} {_NEWEST}", **used, **kind, **before)
            rows += reader.rows(f"{_COLUMNS} WHERE r.uid = :uid AND b.time < :time {_NEWEST}", **before)
            rows = sorted(rows, key=lambda row: -row["time"])[:1]
        for row in rows:
            after = f"{of_kind} AND {_UNSETTLED} AND b.time > :time"
            when = {"time": row["time"]}
            later = (
                [] if question.previous else reader.rows(f"{_COLUMNS} WHERE {after} {_NEWEST}", **used, **kind, **when)
            )
            newest.append(_read(row, store, question, seen, by, later))
    return sorted(newest, key=lambda answer: (answer.form != "", answer.verdict in UNSETTLED, -answer.time))


def _read(
    row: Mapping[str, Any],
    store: Store,
    question: Question,
    seen: Mapping[str, str],
    by: str,
    later: Sequence[Mapping[str, Any]],
) -> Answer:
    estimate: Callable[[str], Any] = row.__getitem__
    environment = Environment(identity=row["identity"], context=row["context"] or {})
    return Answer(
        run=row["run"],
        uid=row["uid"],
        number=row["number"],
        by="alias" if by == "name" and row["digest"] == question.digest else by,
        workload=row["workload"],
        program=row["program"] or "",
        first_program=row["first_program"] or "",
        verdict=Verdict(row["verdict"]),
        settings={} if row["settings"] is None else dict(row["settings"]),
        estimate=None
        if row["gain"] is None
        else Estimate(**{n: estimate(n) for n in ("gain", "se", "low", "high", "n", "level")}),
        control_ms=row["control_ms"],
        best_ms=row["best_ms"],
        variables=row["variables"],
        environment=environment,
        unlike=mismatches(environment, seen),
        objective=str((row["options"] or {}).get("objective", "mean")),
        time=row["time"],
        folder=_folder(row, store),
        host=row["host"] or "",
        log=row["log"] or "",
        held=held_of(str((row["options"] or {}).get("hold", ""))),
        argv=form_of(row["form"])[1],
        form=row["form"],
        later=(later[0]["run"], Verdict(later[0]["verdict"])) if later else None,
    )


def _folder(row: Mapping[str, Any], store: Store) -> Path | None:
    """Where the run lies in this store, which may have been moved since its log was taken up."""
    name = Path(row["log"] or "").parent.name or row["run"]
    for folder in dict.fromkeys((store.run(name), store.run(row["run"]))):
        if _began(folder, row["uid"]):
            return folder.path
    return None


def _began(folder: RunFolder, uid: str) -> bool:
    """Whether the run in `folder` is the one with this `uid`, which is the hash of its first event's line. A line that
    an older version wrote is read as an event first: what was added to events since counts."""
    try:
        with folder.events.open("rb") as file:
            if hashlib.sha256(file.readline()).hexdigest().startswith(uid):
                return True
    except OSError:
        return False
    from tuner.store.events import RunStarted
    from tuner.store.lines import uid_of
    from tuner.store.log import read_first

    first = read_first(folder.events)
    return isinstance(first, RunStarted) and uid_of(first) == uid


def _forms(reader: Reader, question: Question) -> tuple[str, ...]:
    rows = reader.rows(
        "SELECT DISTINCT r.form AS form FROM tuner_runs r JOIN tuner_bundles b ON b.uid = r.uid "
        "WHERE (r.digest = :digest OR r.name = :name) ORDER BY form",
        digest=question.digest,
        name=question.name,
    )
    return tuple(row["form"] for row in rows)


def _unfinished(reader: Reader, question: Question) -> tuple[str, ...]:
    rows = reader.rows(
        "SELECT r.run FROM tuner_runs r LEFT JOIN tuner_bundles b ON b.uid = r.uid "
        "WHERE (r.digest = :digest OR r.name = :name) AND b.uid IS NULL ORDER BY r.started DESC LIMIT 1",
        digest=question.digest,
        name=question.name,
    )
    return tuple(row["run"] for row in rows)
