"""Answers in SQLite: kept before anybody is told so, and never overwritten."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from labelnoise._errors import LabelNoiseError

ListName = Literal["measure", "clean"]
Verdict = Literal["label", "unclear", "skip", "withdrawn"]

# An answer is never changed: a later one of the same row has the next version, and two of one
# version cannot be.
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS answers (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  list TEXT NOT NULL CHECK (list IN {get_args(ListName)}),
  "row" INTEGER NOT NULL,
  version INTEGER NOT NULL CHECK (version > 0),
  verdict TEXT NOT NULL CHECK (verdict IN {get_args(Verdict)}),
  label INTEGER CHECK ((label IS NOT NULL) = (verdict = 'label')),
  given_shown INTEGER NOT NULL,
  at TEXT NOT NULL,
  UNIQUE (list, "row", version)
);
CREATE TABLE IF NOT EXISTS sample (
  position INTEGER PRIMARY KEY,
  "row" INTEGER NOT NULL UNIQUE,
  stratum INTEGER NOT NULL,
  stratum_size INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_SET = "INSERT OR REPLACE INTO settings VALUES (?, ?)"
_SECONDS_TO_WAIT = 10  # for another process that writes


@dataclass(frozen=True)
class Change:
    """What somebody decided on a row, having seen its answer number `version` (0: none yet)."""

    row: int
    version: int
    verdict: Verdict
    label: int | None = None
    """Class number."""


@dataclass(frozen=True)
class Answer(Change):
    """A change that is kept; `version` is its own."""

    given_shown: bool = False
    """Whether the given label was shown beside the question."""
    at: str = ""
    id: int = 0
    """Place among all answers, in the order of time."""


class ConflictError(LabelNoiseError):
    """Somebody else answered first, so nothing was recorded."""

    def __init__(self, current: Sequence[Answer]) -> None:
        self.current = current
        """Newer answers of these rows."""
        super().__init__(
            f"Expected rows that nobody answered meanwhile, but {len(current)} were answered in "
            f"another window: nothing was recorded"
        )


class Store:
    """The answers to one data set, in a file that several windows and processes may share.

    Parameters
    ----------
    path : path
        The file; it is made if there is none.
    fingerprint : str
        Of the labels that the answers are about.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self._fingerprint = path, fingerprint
        self._lock = threading.RLock()
        self._db = sqlite3.connect(
            path, timeout=_SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        try:
            # With these two, an answer is on the disk when COMMIT returns.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise LabelNoiseError(
                f"Expected answers of labelnoise review, or no file yet, but {self.path} cannot "
                f"be used: {error}"
            ) from error
        with self._transaction() as db:
            if not self.last_id() and self.setting("fingerprint", "") != self._fingerprint:
                db.execute("DELETE FROM sample")  # it was looked at, but nobody answered
                db.execute(_SET, ("fingerprint", self._fingerprint))
            self._expect_fingerprint()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def record(
        self, list_name: ListName, changes: Iterable[Change], given_shown: bool
    ) -> list[Answer]:
        """Keep all changes, or none if one of the rows has a newer answer than was seen."""
        wanted = {change.row: change for change in changes}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self._transaction() as db:
            self._expect_fingerprint()
            current = self._current(db, list_name, wanted)
            newer = [
                answer for row, answer in current.items() if answer.version != wanted[row].version
            ]
            if newer:
                raise ConflictError(newer)
            if unseen := [c.row for c in wanted.values() if c.version and c.row not in current]:
                raise LabelNoiseError(
                    f"Expected version 0 for rows without an answer, but row {unseen[0]} has none"
                )
            for change in wanted.values():
                db.execute(
                    'INSERT INTO answers (list, "row", version, verdict, label, given_shown, at) '
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        list_name,
                        change.row,
                        change.version + 1,
                        change.verdict,
                        change.label,
                        given_shown,
                        now,
                    ),
                )
            kept = self._current(db, list_name, wanted)
        return [kept[row] for row in wanted]

    def answers(self, list_name: ListName, rows: Iterable[int] | None = None) -> dict[int, Answer]:
        """Give the last answer of each row that has one, withdrawn ones included."""
        with self._lock:
            return self._current(self._db, list_name, rows)

    def last_id(self) -> int:
        """Give the number of the last answer of all."""
        return int(self._value("SELECT coalesce(max(id), 0) FROM answers"))

    def decided(self, list_name: ListName, up_to: int) -> set[int]:
        """Give the rows that had an answer when `up_to` was the last of all."""
        with self._lock:
            found = self._db.execute(
                'SELECT "row", verdict, max(version) FROM answers '
                'WHERE list = ? AND id <= ? GROUP BY "row"',
                (list_name, up_to),
            ).fetchall()
        return {row for row, verdict, _ in found if verdict != "withdrawn"}

    def sample(self) -> list[tuple[int, int, int]]:
        """Give (row, stratum, stratum_size) of the sample that measures, in its order."""
        with self._lock:
            return self._db.execute(
                'SELECT "row", stratum, stratum_size FROM sample ORDER BY position'
            ).fetchall()

    def extend_sample(self, rows: Iterable[tuple[int, int, int]], known: int) -> bool:
        """Add rows (row, stratum, stratum_size) to a sample of which `known` rows were seen.

        False if another window added some meanwhile; nothing is added then.
        """
        with self._transaction() as db:
            self._expect_fingerprint()
            (found,) = db.execute("SELECT count(*) FROM sample").fetchone()
            if found == known:
                db.executemany(
                    'INSERT INTO sample ("row", stratum, stratum_size) VALUES (?, ?, ?)', rows
                )
        return bool(found == known)

    def setting(self, name: str, default: str) -> str:
        """Give a setting, or its default."""
        return str(
            self._value(
                "SELECT coalesce((SELECT value FROM settings WHERE name = ?), ?)", name, default
            )
        )

    def set(self, name: str, value: str) -> None:
        """Change a setting."""
        with self._transaction() as db:
            db.execute(_SET, (name, value))

    def _expect_fingerprint(self) -> None:
        if self.setting("fingerprint", "") != self._fingerprint:
            raise LabelNoiseError(
                f"Expected answers to these labels, but {self.path} has answers to other labels "
                f"or classes: move it away, or review the results that it was made for"
            )

    def _value(self, query: str, *parameters: Any) -> Any:
        with self._lock:
            return self._db.execute(query, parameters).fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, and nobody else writes meanwhile."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise LabelNoiseError(
                    f"Expected to write {self.path}, but nothing was recorded: {error}"
                ) from error
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @staticmethod
    def _current(
        db: sqlite3.Connection, list_name: str, rows: Iterable[int] | None
    ) -> dict[int, Answer]:
        # SQLite takes the other columns from the row that has the largest version.
        query = (
            'SELECT "row", max(version), verdict, label, given_shown, at, id FROM answers '
            'WHERE list = ? {} GROUP BY "row"'
        )
        if rows is None:
            found = db.execute(query.format(""), (list_name,)).fetchall()
        else:
            one = query.format('AND "row" = ?')
            each = (db.execute(one, (list_name, row)).fetchone() for row in rows)
            found = [answer for answer in each if answer is not None]
        return {
            row: Answer(row, version, verdict, label, bool(shown), at, number)
            for row, version, verdict, label, shown, at, number in found
        }


def has_answers(path: Path) -> bool:
    """Whether somebody has answered anything in this file, or it cannot be told."""
    try:
        with closing(sqlite3.connect(path)) as db:
            return db.execute("SELECT 1 FROM answers").fetchone() is not None
    except sqlite3.Error:
        return True


def as_json(answer: Answer | None) -> dict[str, Any] | None:
    """What the page needs of an answer."""
    if answer is None:
        return None
    content: Mapping[str, Any] = asdict(answer)
    return {name: content[name] for name in ("row", "version", "verdict", "label")}
