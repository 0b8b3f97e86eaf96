"""MovieLens: 5-star ratings of films, with their genres (Harper & Konstan 2015, doi:10.1145/2827872).

32M, 25M, 20M, small    ratings.csv  userId,movieId,rating,timestamp       movies.csv  movieId,title,genres
10M, 1M                 ratings.dat  UserID::MovieID::Rating::Timestamp    movies.dat  MovieID::Title::Genres
100K                    u.data       user, item, rating, timestamp (tabs)  u.item      id|title|...|19 flags of genres
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from lcb.datasets.dataset import Dataset
from lcb.errors import InputError
from lcb.storage.importing.items import build_items, read_item_table
from lcb.storage.importing.source import Source
from lcb.storage.importing.table_source import Columns, source_from_table
from lcb.storage.logs.items import Items
from lcb.storage.tables.formats.delimited import open_csv
from lcb.storage.tables.table import Table

_NO_GENRE = ("(no genres listed)", "unknown")
_GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
_FORMS = (("ratings.csv", "movies.csv"), ("ratings.dat", "movies.dat"), ("u.data", "u.item"))


def _open_source(folder: Path, part: str) -> Source:
    ratings, movies = next(form for form in _FORMS if _has_files(folder, form))
    table, items = {"ratings.csv": _open_csv_form, "ratings.dat": _open_dat_form, "u.data": _open_tab_form}[ratings](
        folder / ratings, folder / movies
    )
    columns = Columns(user="userId", item="movieId", rating="rating", order="timestamp")
    return source_from_table(table, columns, items, files=(folder / ratings, folder / movies), whole=("user", "item"))


def _open_csv_form(ratings: Path, movies: Path) -> tuple[Table, Items]:
    table = open_csv(str(movies))
    cells = table.read_all(["genres"])["genres"]
    plain = read_item_table(table, "movieId", None, "title", "|", whole=True)
    return open_csv(str(ratings)), build_items(str(movies), plain.names, cells, plain.titles, none=_NO_GENRE)


def _open_dat_form(ratings: Path, movies: Path) -> tuple[Table, Items]:
    names = (
        "userId",
        "",
        "movieId",
        " ",
        "rating",
        "  ",
        "timestamp",
    )  # `::` is read as two separators with an empty cell between
    rows = [
        (line.split("::")[0], "::".join(line.split("::")[1:-1]), line.split("::")[-1]) for line in _read_lines(movies)
    ]
    return open_csv(str(ratings), ":", names, quoted=False), _build_items(movies, rows)


def _open_tab_form(ratings: Path, movies: Path) -> tuple[Table, Items]:
    names = ("userId", "movieId", "rating", "timestamp")
    rows = []
    for line in _read_lines(movies):
        cells = line.split("|")
        flags = cells[-len(_GENRES) :]
        rows.append((cells[0], cells[1], "|".join(g for g, flag in zip(_GENRES, flags, strict=False) if flag == "1")))
    return open_csv(str(ratings), "\t", names, quoted=False), _build_items(movies, rows)


def _build_items(path: Path, rows: Sequence[tuple[str, str, str]]) -> Items:
    try:
        names = pa.array([int(row[0]) for row in rows], pa.int64())
    except ValueError as error:
        raise InputError(f"{path} has an id that is not a whole number ({error}); download it again") from None
    titles, genres = pa.array([row[1] for row in rows]), pa.array([row[2] for row in rows])
    return build_items(str(path), names, genres, titles, none=_NO_GENRE)


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a file in UTF-8, or in Latin-1 as the older sets are."""
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return [line for line in text.splitlines() if line.strip()]


def _has_files(folder: Path, form: Sequence[str]) -> bool:
    return all((folder / name).is_file() for name in form)


DATASET = Dataset(
    name="movielens",
    title="MovieLens",
    where="https://grouplens.org/datasets/movielens/",
    licence="GroupLens' own: research use, no redistribution without permission, no commercial use without permission",
    files="ratings.csv and movies.csv (or ratings.dat and movies.dat, or u.data and u.item)",
    reading="an event is a rating of 0.5 to 5 stars; categories are the genres",
    is_in=lambda folder: any(_has_files(folder, form) for form in _FORMS),
    source=_open_source,
)
