"""goodbooks-10k: star ratings of 10,000 books, with the shelves readers put them on (Zając 2017).

    ratings.csv     user_id,book_id,rating, in the order of time
    books.csv       book_id,goodreads_book_id,...,title,...      (the first version: id,book_id,...)
    book_tags.csv   goodreads_book_id,tag_id,count               a shelf and how many readers use it for the book
    tags.csv        tag_id,tag_name

A book's categories are genres found in the names of its shelves.  A genre weighs as much as the number of readers who
use its shelves; the three heaviest are kept if they have at least a quarter of the heaviest weight.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lcb.datasets.dataset import Dataset
from lcb.errors import InputError
from lcb.storage.importing.bad_rows import Check, Problems
from lcb.storage.importing.cells import to_whole_numbers
from lcb.storage.importing.items import build_items
from lcb.storage.importing.source import Source
from lcb.storage.importing.table_source import Columns, source_from_table
from lcb.storage.logs.items import Items
from lcb.storage.tables.formats.delimited import open_csv
from lcb.storage.tables.table import Table

_FILES = ("ratings.csv", "books.csv", "book_tags.csv", "tags.csv")
MOST_GENRES, LEAST_SHARE = 3, 0.25

# A shelf belongs to a genre if its name, words separated by hyphens, matches the pattern.
GENRES = {
    "biography": r"\b(auto)?biograph|\bmemoirs?\b",
    "business": r"\bbusiness|\beconomics|\bfinance|\bself-help|\bleadership",
    "children": r"\bchildren|\bkids|\bmiddle-grade|\bpicture-book",
    "classics": r"\bclassics?\b",
    "comics": r"\bcomics?\b|\bgraphic-novel|\bmanga\b",
    "contemporary": r"\bcontemporary\b|\brealistic-fiction",
    "crime": r"\bcrime\b|\bdetective|\bpolice",
    "fantasy": r"\bfantasy\b|\bdragons?\b|\bwizards?\b|\bfairy-tales?",
    "historical-fiction": r"\bhistorical",
    "history": r"\bhistory\b|\bpolitics|\bmilitary|\bwar\b",
    "horror": r"\bhorror|\bgothic|\bzombies?",
    "humor": r"\bhumou?r|\bcomedy|\bfunny",
    "literary": r"\bliterary|\bliterature\b",
    "mystery": r"\bmyster(y|ies)\b|\bmurder|\bcozy",
    "paranormal": r"\bparanormal|\bvampires?|\bsupernatural|\bwerewol|\bwitches",
    "poetry": r"\bpoetry\b|\bpoems?\b|\bplays?\b|\bdrama\b",
    "religion": r"\breligion|\bchristian|\bspiritual|\bfaith\b",
    "romance": r"\bromance|\berotica?\b|\bchick-?lit",
    "science": r"\bscience\b(?!-fiction)|\bpsychology|\bphilosophy|\bnature\b|\bmath",
    "science-fiction": r"\bsci-?fi\b|\bscience-fiction|\bdystopia|\bsff?\b",
    "thriller": r"\bthrillers?\b|\bsuspense|\bespionage",
    "travel-food": r"\btravel|\bcook|\bfood\b",
    "young-adult": r"\byoung-adult|\bya\b|\bteen",
}


def _open_source(folder: Path, part: str) -> Source:
    ratings, books, book_tags, tags = (open_csv(str(folder / name)) for name in _FILES)
    files = tuple(folder / name for name in _FILES)
    columns = Columns(user="user_id", item="book_id", rating="rating")
    items = _read_books(books, book_tags, tags)
    return source_from_table(ratings, columns, items, files=files, whole=("user", "item"), repeats=False)


def _read_books(books: Table, book_tags: Table, tags: Table) -> Items:
    is_first = "goodreads_book_id" not in books.names
    own, goodreads = ("id", "book_id") if is_first else ("book_id", "goodreads_book_id")
    rows = books.read_all([own, goodreads, "title"])
    names = _to_integers(rows[own], books, own)
    shelved = book_tags.read_all(["goodreads_book_id", "tag_id", "count"])
    named = tags.read_all(["tag_id", "tag_name"])
    book = _to_integers(shelved["goodreads_book_id"], book_tags, "goodreads_book_id")
    place = pc.index_in(book, value_set=_to_integers(rows[goodreads], books, goodreads))
    tag = pc.index_in(
        _to_integers(shelved["tag_id"], book_tags, "tag_id"), value_set=_to_integers(named["tag_id"], tags, "tag_id")
    )
    known = pc.and_(place.is_valid(), tag.is_valid())
    weight = _sum_weights(
        place.filter(known).to_numpy(),
        tag.filter(known).to_numpy(),
        np.maximum(_to_integers(shelved["count"], book_tags, "count").filter(known).to_numpy(), 0),
        _match_genres(named["tag_name"].to_pylist()),
        len(names),
    )
    lists = [_pick_heaviest(row) for row in weight]
    return build_items(books.path, names, pa.array(lists, pa.list_(pa.string())), rows["title"])


def _match_genres(shelves: list[str]) -> NDArray[np.float64]:
    """Return (n_shelves, n_genres): 1 if the shelf belongs to the genre, else 0."""
    patterns = [re.compile(pattern) for pattern in GENRES.values()]
    return np.array([[bool(pattern.search(shelf)) for pattern in patterns] for shelf in shelves], float)


def _sum_weights(
    book: NDArray[Any], shelf: NDArray[Any], count: NDArray[Any], matches: NDArray[np.float64], n_books: int
) -> NDArray[np.float64]:
    """Return (n_books, n_genres): readers who put the book on shelves of the genre."""
    weight = np.zeros((n_books, len(GENRES)))
    np.add.at(weight, book, matches[shelf] * count[:, None])
    return weight


def _pick_heaviest(weight: NDArray[np.float64]) -> list[str]:
    """Return the heaviest genres of a book; none for a book without weights."""
    order = np.argsort(-weight, kind="stable")[:MOST_GENRES]
    names = list(GENRES)
    return [names[j] for j in order if weight[j] > 0 and weight[j] >= LEAST_SHARE * weight.max()]


def _to_integers(column: Any, table: Table, name: str) -> Any:
    problems = Problems()
    made = to_whole_numbers(column, name, Check(table.path, np.arange(1, len(column) + 1), problems))
    if problems.n_rows:
        raise InputError(f"{problems.lines()[0]}; download the set again")
    return made


DATASET = Dataset(
    name="goodbooks",
    title="goodbooks-10k",
    where="https://github.com/zygmuntz/goodbooks-10k",
    licence="CC BY-SA 4.0",
    files="ratings.csv, books.csv, book_tags.csv and tags.csv",
    reading=f"an event is a rating of 1 to 5 stars; categories are {len(GENRES)} genres, by the names of its shelves",
    is_in=lambda folder: all((folder / name).is_file() for name in _FILES),
    source=_open_source,
)
