"""Each public set, as its files are when downloaded: small ones in the true format, made here."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.datasets import DATASETS, find_dataset
from lcb.errors import BadRows, InputError
from lcb.storage.importing.import_log import import_log
from lcb.storage.logs.log import open_log


def files(folder, **contents):
    folder.mkdir(exist_ok=True, parents=True)
    for name, content in contents.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def loaded(folder, out, part=None, **settings):
    dataset = find_dataset(folder)
    found = import_log(dataset.open(folder, part), out, **settings)
    return dataset.name, found, open_log(out)


def events_of(log, *names):
    users, items = log.users.to_pylist(), log.items.to_pylist()
    columns = [getattr(log, name).tolist() for name in names]
    return [(users[u], items[i], *values) for u, i, *values in zip(log.user, log.item, *columns, strict=True)]


def categories_of(log):
    names = np.array(log.categories, object)
    return {log.items[i].as_py(): set(names[row]) for i, row in enumerate(log.item_categories.toarray())}


def test_every_set_says_where_to_get_it_and_under_which_licence():
    assert list(DATASETS) == ["movielens", "mind", "kuairand", "open-bandit", "goodbooks", "folder"]
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert all([dataset.title, dataset.files, dataset.reading, dataset.licence])
        assert "https://" in dataset.where or name == "folder"


def test_a_folder_of_no_known_set_is_not_taken_for_one(tmp_path):
    assert find_dataset(files(tmp_path / "other", ratings__csv="user,item\n1,2\n")) is None
    with pytest.raises(
        InputError, match=r"is not MovieLens, which has ratings.csv and movies.csv .*; get it from https"
    ):
        DATASETS["movielens"].open(tmp_path)


def test_a_part_that_a_set_has_not_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"--part new, but MIND has no such part; give one of category, subcategory"):
        DATASETS["mind"].open(tmp_path, "new")
    with pytest.raises(InputError, match=r"--part new, but MovieLens has no such part; leave it out"):
        DATASETS["movielens"].open(tmp_path, "new")


# MovieLens

MOVIES = {
    1: ("Toy Story (1995)", {"Adventure", "Animation"}),
    11: ("American President, The (1995)", {"Comedy"}),
    6: ("Café (1990)", set()),
}
RATINGS = [(1, 11, 4.0, 964982703), (1, 1, 4.5, 964982224), (12, 6, 0.5, 964983815)]
RATED = [(1, 1, 4.5, 964982224), (1, 11, 4.0, 964982703), (12, 6, 0.5, 964983815)]


def movielens(folder, form):
    if form == "csv":
        genres = {1: "Adventure|Animation", 11: "Comedy", 6: "(no genres listed)"}
        titles = {i: f'"{title}"' if "," in title else title for i, (title, _) in MOVIES.items()}
        movies = "".join(f"{i},{titles[i]},{genres[i]}\n" for i in MOVIES)
        ratings = "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in RATINGS)
        return files(
            folder,
            movies__csv="movieId,title,genres\n" + movies,
            ratings__csv="userId,movieId,rating,timestamp\n" + ratings,
            tags__csv="userId,movieId,tag,timestamp\n",
            links__csv="movieId,imdbId,tmdbId\n",
        )
    if form == "dat":
        genres = {1: "Adventure|Animation", 11: "Comedy", 6: ""}
        movies = "".join(f"{i}::{title}::{genres[i]}\n" for i, (title, _) in MOVIES.items())
        ratings = "".join(f"{u}::{i}::{r}::{t}\n" for u, i, r, t in RATINGS)
        return files(folder, movies__dat=movies.encode("latin-1"), ratings__dat=ratings)
    flags = {1: (2, 3), 11: (5,), 6: (0,)}
    movies = "".join(
        f"{i}|{title}|01-Jan-1995||http://us.imdb.com/M/title-exact?{i}|"
        + "|".join(str(int(j in flags[i])) for j in range(19))
        + "\n"
        for i, (title, _) in MOVIES.items()
    )
    ratings = "".join(f"{u}\t{i}\t{r}\t{t}\n" for u, i, r, t in RATINGS)
    return files(folder, **{"u__item": movies.encode("latin-1"), "u__data": ratings, "u__genre": "unknown|0\n"})


@pytest.mark.parametrize("form", ["csv", "dat", "tabs"])
def test_movielens_gives_ratings_in_time_and_genres(tmp_path, form):
    name, found, log = loaded(movielens(tmp_path / "ml", form), tmp_path / "out", like=4)
    assert name == "movielens"
    assert events_of(log, "rating", "order") == RATED
    assert log.reward.tolist() == [1.0, 1.0, 0.0]
    assert log.titles.to_pylist() == [title for title, _ in MOVIES.values()]
    assert categories_of(log) == {i: genres for i, (_, genres) in MOVIES.items()}
    assert found.notes == ("1 item without a category, with 1 of 3 events",)
    assert found.n_back == 1


def test_movielens_rows_that_are_wrong_are_told(tmp_path):
    folder = movielens(tmp_path / "ml", "csv")
    with open(folder / "ratings.csv", "a") as file:
        file.write("1,99,4.0,964982703\nx,11,4.0,964982703\n1,11,good,964982703\n")
    with pytest.raises(BadRows, match=r"ratings.csv has 3 bad rows of 6") as refused:
        loaded(folder, tmp_path / "out")
    assert [line.partition("ratings.csv ")[2] for line in refused.value.listed] == [
        f"row 4: item is '99', which is not in {folder / 'movies.csv'}",
        "row 5: userId is 'x'; a whole number is wanted",
        "row 6: rating is 'good'; a number is wanted",
    ]


def test_old_movielens_with_a_broken_id_is_refused(tmp_path):
    folder = files(tmp_path, ratings__dat="1::1::5::7\n", movies__dat="one::Title::Comedy\n")
    with pytest.raises(InputError, match=r"movies.dat has an id that is not a whole number"):
        loaded(folder, tmp_path / "out")


# MIND

NEWS = (
    'N55528\tlifestyle\tlifestyleroyals\tThe "Brands Queen Elizabeth Swears By\tShop\thttps://assets.msn.com/1.html\t[]\t[]\n'
    "N19639\thealth\tweightloss\t50 Worst Habits\tThese\thttps://assets.msn.com/2.html\t[]\t[]\n"
    "N61837\tnews\tnewsworld\tThe Cost of Trump's Aid Freeze\tLt.\thttps://assets.msn.com/3.html\t[]\t[]\n"
)
BEHAVIORS = (
    "1\tU13740\t11/11/2019 9:05:58 AM\tN55189 N42782\tN55528-1 N19639-0\n"
    "2\tU91836\t11/12/2019 6:11:30 PM\t\tN61837-0 N55528-0 N19639-1\n"
    "3\tU13740\t11/11/2019 12:00:00 AM\tN1\tN61837-1\n"
)


def test_mind_gives_an_event_for_each_item_shown(tmp_path):
    folder = files(tmp_path / "MINDsmall_train", behaviors__tsv=BEHAVIORS, news__tsv=NEWS, entity_embedding__vec="")
    name, found, log = loaded(folder, tmp_path / "out")
    assert name == "mind"
    assert events_of(log, "reward") == [
        ("U13740", "N61837", 1.0),
        ("U13740", "N55528", 1.0),
        ("U13740", "N19639", 0.0),
        ("U91836", "N61837", 0.0),
        ("U91836", "N55528", 0.0),
        ("U91836", "N19639", 1.0),
    ]
    microseconds = np.array(
        ["2019-11-11T00:00:00", "2019-11-11T09:05:58", "2019-11-12T18:11:30"], "datetime64[us]"
    ).astype(int)
    assert log.order.tolist() == np.repeat(microseconds, [1, 2, 3]).tolist()
    assert categories_of(log) == {"N55528": {"lifestyle"}, "N19639": {"health"}, "N61837": {"news"}}
    assert log.titles[0].as_py() == 'The "Brands Queen Elizabeth Swears By'
    assert found.n_rows == 6


def test_mind_can_have_subcategories(tmp_path):
    folder = files(tmp_path / "mind", behaviors__tsv=BEHAVIORS, news__tsv=NEWS)
    _, _, log = loaded(folder, tmp_path / "out", "subcategory")
    assert log.categories == ("health/weightloss", "lifestyle/lifestyleroyals", "news/newsworld")


def test_mind_rows_that_are_wrong_are_told(tmp_path):
    wrong = (
        "4\tU1\tyesterday\t\tN55528-1\n"
        "5\tU1\t11/11/2019 9:05:58 AM\t\tN55528 N19639-1\n"
        "6\tU1\t11/11/2019 9:05:58 AM\t\tN7-1\n"
    )
    folder = files(tmp_path / "mind", behaviors__tsv=BEHAVIORS + wrong, news__tsv=NEWS)
    _, found, log = loaded(folder, tmp_path / "out", on_error="skip")
    assert [line.partition("behaviors.tsv ")[2] for line in found.listed] == [
        "row 4: time is 'yesterday'; one such as 11/15/2019 9:55:12 AM is wanted",
        "row 5: click is missing",
        f"row 6: item is 'N7', which is not in {folder / 'news.tsv'}",
    ]
    assert log.n_events == 7


# KuaiRand

LOG = (
    "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,is_hate,long_view,play_time_ms,"
    "duration_ms,profile_stay_time,comment_stay_time,is_profile_enter,is_rand,tab\n"
)
VIDEOS = (
    "video_id,author_id,video_type,upload_dt,upload_type,visible_status,video_duration,server_width,server_height,music_id,music_type,tag\n"
    '10,441,NORMAL,2020-07-08,ShortImport,1.0,17200.0,720,1280,989206467,4.0,"12,65"\n'
    "11,442,NORMAL,2020-07-08,ShortImport,1.0,17200.0,720,1280,989206467,4.0,8\n"
    "12,443,AD,2020-07-08,ShortImport,1.0,17200.0,720,1280,989206467,4.0,\n"
)


def kuairand(folder):
    def line(user, video, time, click, is_rand):
        return f"{user},{video},20220421,400,{time},{click},0,0,0,0,0,1,151024,104400,0,0,0,{is_rand},1\n"

    return files(
        folder,
        log_random_4_22_to_5_08_pure__csv=LOG + line(0, 10, 1650485801301, 1, 1) + line(0, 12, 1650485801300, 0, 1),
        log_standard_4_08_to_4_21_pure__csv=LOG + line(3, 11, 1649485801301, 1, 0),
        log_standard_4_22_to_5_08_pure__csv=LOG + line(0, 11, 1650485801299, 0, 0),
        video_features_basic_pure__csv=VIDEOS,
        user_features_pure__csv="user_id\n0\n",
    )


@pytest.mark.parametrize("inside", ["", "data"])
def test_kuairand_gives_the_random_log_with_its_propensity(tmp_path, inside):
    kuairand(tmp_path / "KuaiRand-Pure" / inside)
    name, found, log = loaded(tmp_path / "KuaiRand-Pure", tmp_path / "out")
    assert name == "kuairand"
    assert events_of(log, "reward", "order") == [(0, 12, 0.0, 1650485801300), (0, 10, 1.0, 1650485801301)]
    assert log.propensity.tolist() == [np.float32(1 / 7583)] * 2
    assert categories_of(log) == {10: {"12", "65"}, 12: set()}
    assert found.notes == (
        "1 of 3 categories have no event: 8",
        "1 item without a category, with 1 of 2 events",
    )


def test_kuairand_gives_the_standard_logs_without_propensity(tmp_path):
    _, _, log = loaded(kuairand(tmp_path / "data"), tmp_path / "out", "standard")
    assert events_of(log, "reward") == [(0, 11, 0.0), (3, 11, 1.0)]
    assert log.propensity is None
    _, _, log = loaded(kuairand(tmp_path / "data"), tmp_path / "all", "all")
    assert events_of(log, "reward") == [(0, 11, 0.0), (0, 12, 0.0), (0, 10, 1.0), (3, 11, 1.0)]


def test_a_bad_row_of_kuairand_is_named_with_its_own_file(tmp_path):
    folder = kuairand(tmp_path / "data")
    for path in sorted(folder.glob("log_*.csv")):
        path.write_text(path.read_text().replace(",20220421,400,", ",20220421,400,x", 1))
    _, found, _ = loaded(folder, tmp_path / "out", "all", on_error="skip")
    names = ("log_random_4_22_to_5_08_pure", "log_standard_4_08_to_4_21_pure", "log_standard_4_22_to_5_08_pure")
    assert [line.split(": time_ms")[0] for line in found.listed] == [f"{folder / name}.csv row 1" for name in names]


# Open Bandit

HEADER = (
    ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,user_feature_2,user_feature_3,"
    "user-item_affinity_0\n"
)
ANN = (
    "cef3390ed299c09874189c387777674a,03a5648a76832f83c859d46bc06cb64a,"
    "7bc94a2da491829b777c49c4b5e480f2,9bde591ffaab8d54c457448e4dca6f53"
)
BOB = ANN.replace("9bde591f", "c39b0c7d")
SHOWN = (
    f"0,2019-11-24 00:03:36.705207+00:00,1,3,0,0.029411764705882353,{ANN},0.0\n"
    f"1,2019-11-24 00:03:13.442536+00:00,0,1,1,0.5,{BOB},0.0\n"
    f"2,2019-11-24 00:03:13.442536+00:00,1,2,1,0.25,{ANN},1.0\n"
)
CONTEXT = (
    ",item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3\n"
    "0,0,-0.6771831139635117,ceca20033d7d36b74dc683ddfb804aa7,eb6f942c01859574cb88d2e62bf84354,795091554fd8f6b4a0ca7df81bf50a64\n"
    "1,1,-0.7202996418188664,270de57201b8ec18df9a72ed7ecf20eb,eb6f942c01859574cb88d2e62bf84354,795091554fd8f6b4a0ca7df81bf50a64\n"
)


@pytest.mark.parametrize("campaign", ["all", "men", "women"])
def test_open_bandit_gives_clicks_with_propensities_and_positions(tmp_path, campaign):
    folder = files(tmp_path / "random", **{f"{campaign}__csv": HEADER + SHOWN, "item_context__csv": CONTEXT})
    name, found, log = loaded(folder, tmp_path / "out")
    assert name == "open-bandit"
    ann, bob = "cef3390e-03a5648a-7bc94a2d-9bde591f", "cef3390e-03a5648a-7bc94a2d-c39b0c7d"
    assert events_of(log, "reward") == [(ann, 1, 1.0), (ann, 1, 0.0), (bob, 0, 1.0)]
    assert log.propensity.tolist() == [0.25, np.float32(1 / 34), 0.5]
    assert (log.features, log.x.tolist()) == (("position",), [[2.0], [3.0], [1.0]])
    assert log.categories == ()
    assert log.arms()[0] == ("0", "1")
    assert found.notes == ("users with the same four features count as one user: the set has no user ids",)
    assert np.diff(log.order[:2]).tolist() == [23262671]


def test_open_bandit_can_have_the_hashed_features_as_categories(tmp_path):
    folder = files(tmp_path / "random", all__csv=HEADER + SHOWN, item_context__csv=CONTEXT)
    _, _, log = loaded(folder, tmp_path / "out", "categories")
    shared = {"item_feature_2=eb6f942c", "item_feature_3=79509155"}
    assert categories_of(log) == {0: {"item_feature_1=ceca2003"} | shared, 1: {"item_feature_1=270de572"} | shared}


# goodbooks-10k

BOOKS = "book_id,goodreads_book_id,best_book_id,authors,title\n"
SHELVES = (
    "tag_id,tag_name\n1,to-read\n2,fantasy\n3,ya-fantasy\n4,young-adult\n5,classics\n"
    "6,science-fiction\n7,popular-science\n"
)
SHELVED = (
    "goodreads_book_id,tag_id,count\n2767052,1,100000\n2767052,2,300\n2767052,3,100\n2767052,4,20\n2767052,5,99\n"
    "3,6,50\n3,7,40\n8,2,7\n"
)


def goodbooks(folder, *, first):
    header = "id,book_id,best_book_id,authors,title\n" if first else BOOKS
    books = (
        '1,2767052,2767052,Suzanne Collins,"The Hunger Games (The Hunger Games, #1)"\n'
        "2,3,3,Rowling,Stone\n3,41865,41865,Meyer,Twilight\n"
    )
    rows = [(1, 2, 5), (2, 3, 4), (1, 1, 3), (1, 2, 4)]
    ratings = "".join(f"{b},{u},{r}\n" if first else f"{u},{b},{r}\n" for u, b, r in rows)
    return files(
        folder,
        ratings__csv=("book_id,user_id,rating\n" if first else "user_id,book_id,rating\n") + ratings,
        books__csv=header + books,
        tags__csv=SHELVES,
        book_tags__csv=SHELVED,
    )


@pytest.mark.parametrize("first", [False, True])
def test_goodbooks_gives_ratings_and_the_genres_of_its_shelves(tmp_path, first):
    name, found, log = loaded(goodbooks(tmp_path / "books", first=first), tmp_path / "out")
    assert name == "goodbooks"
    assert events_of(log, "rating", "order") == [(1, 1, 3.0, 0), (1, 2, 4.0, 1), (2, 3, 4.0, 0)]
    assert (found.n_duplicates, found.duplicates) == (1, "drop")
    # 400 readers say fantasy, 120 young-adult, 99 classics: less than a quarter; "science-fiction" is no science
    assert categories_of(log) == {1: {"fantasy", "young-adult"}, 2: {"science-fiction", "science"}, 3: set()}
    assert log.titles[0].as_py() == "The Hunger Games (The Hunger Games, #1)"


def test_goodbooks_with_a_broken_shelf_is_refused(tmp_path):
    folder = goodbooks(tmp_path / "books", first=False)
    with open(folder / "book_tags.csv", "a") as file:
        file.write("3,six,50\n")
    with pytest.raises(InputError, match=r"book_tags.csv row 9: tag_id is 'six'; a whole number is wanted; download"):
        loaded(folder, tmp_path / "out")


# The generic folder


def generic(folder):
    folder.mkdir()
    events = {
        "user": pa.array([1, 1, 2], pa.int32()),
        "order": pa.array([1, 0, 0], pa.int16()),
        "item": pa.array([5, 6, 5], pa.int32()),
        "rating": pa.array([5, 1, 3], pa.int8()),
    }
    items = {
        "item": pa.array([5, 6], pa.int32()),
        "categories": pa.array([[1], [0, 1]], pa.list_(pa.int8())),
        "title": ["A", "B"],
    }
    pq.write_table(pa.table(events), folder / "events.parquet")
    pq.write_table(pa.table(items), folder / "items.parquet")
    (folder / "categories.json").write_text('["fantasy", "crime"]')
    return folder


def test_the_generic_folder_is_imported_as_it_is_opened(tmp_path):
    folder = generic(tmp_path / "log")
    name, _, log = loaded(folder, tmp_path / "out")
    as_it_is = open_log(folder)
    assert name == "folder"
    assert (
        events_of(log, "rating", "order")
        == events_of(as_it_is, "rating", "order")
        == [(1, 6, 1.0, 0), (1, 5, 5.0, 1), (2, 5, 3.0, 0)]
    )
    assert categories_of(log) == categories_of(as_it_is) == {5: {"crime"}, 6: {"fantasy", "crime"}}
    assert log.categories == as_it_is.categories
    assert log.titles.to_pylist() == ["A", "B"]


def test_the_generic_folder_is_not_imported_onto_itself(tmp_path):
    with pytest.raises(InputError, match=r"events.parquet would be overwritten while it is read"):
        loaded(generic(tmp_path / "log"), tmp_path / "log")


def test_the_generic_folder_may_have_events_alone(tmp_path):
    folder = generic(tmp_path / "log")
    (folder / "items.parquet").unlink()
    _, _, log = loaded(folder, tmp_path / "out")
    assert (log.items.to_pylist(), log.categories) == ([5, 6], ())


def test_unknown_items_of_the_generic_folder_can_be_left_out(tmp_path):
    folder = generic(tmp_path / "log")
    pq.write_table(pa.table({"item": [5], "categories": [[0]]}), folder / "items.parquet")
    with pytest.raises(InputError, match=r"1 of 3 events in .* are of 1 item missing in .*, such as 6"):
        open_log(folder)
    _, found, log = loaded(folder, tmp_path / "out", on_error="skip")
    assert found.bad_rows == {f"item which is not in {folder / 'items.parquet'}": 1}
    assert log.n_events == 2
