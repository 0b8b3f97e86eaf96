"""Tables of statistics: sums of some rows pass, however they were rounded; sums that no rows have are refused."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.errors import EventError, InputError
from lcb.storage.tables.possible_sums import check_sums
from lcb.storage.tables.row_errors import Place
from lcb.storage.tables.user_statistics import read_user_statistics

PLACE = Place("s.parquet")


def sum_rows(x, reward, order=None, dtype=np.float64):
    """Return count, square_sum, moment and gram of one user, added row by row in this order and rounded to `dtype`."""
    z = np.column_stack([x, reward])
    total = np.zeros((z.shape[1],) * 2)
    for row in z if order is None else z[order]:
        total += np.outer(row, row)
    total = total.astype(dtype).astype(np.float64)
    return float(len(z)), total[-1, -1], total[:-1, -1], total[:-1, :-1]


def check(*users):
    check_sums(*(np.array(values) for values in zip(*users, strict=True)), PLACE)


def draw(seed, n, d):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((n, d)), rng.standard_normal(n)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 4, 20, 50])
def test_sums_of_any_number_of_rows_pass(d, dtype):
    users = []
    for n in [1, 2, 3, d, d + 1, d + 2, 3 * d, 400]:
        rng, x, reward = draw(n, n, d)
        users += [sum_rows(x, reward, dtype=dtype), sum_rows(x, reward, rng.permutation(n), dtype)]
        users.append(sum_rows(x, x @ rng.standard_normal(d), dtype=dtype))  # rewards explained by the features
        users.append(sum_rows(x, np.zeros(n), dtype=dtype))
        users.append(sum_rows(x, (reward > 0).astype(float), dtype=dtype))
    check(*users)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_of_features_that_depend_on_each_other_pass(dtype):
    users = []
    for n in [1, 5, 300]:
        rng, x, reward = draw(n, n, 3)
        one_hot = np.eye(4)[rng.integers(0, 4, n)]
        constant, offset = np.ones((n, 1)), np.full((n, 1), 1.7e9) + rng.integers(0, 1000, (n, 1))
        features = np.hstack([x, x @ [[1.0], [0.1], [-3.0]], one_hot, constant, offset, np.zeros((n, 1))])
        users += [sum_rows(features, reward, dtype=dtype), sum_rows(features, np.full(n, 0.1), dtype=dtype)]
    check(*users)


@pytest.mark.parametrize("scale", [1e-90, 1e-9, 1.0, 1e9, 1e90])
def test_sums_of_very_small_and_very_large_numbers_pass(scale):
    users = []
    for n in [1, 3, 50]:
        _, x, reward = draw(n, n, 6)
        mixed = x * np.array([1.0, scale, 1 / scale, 1.0, scale, 1 / scale])
        users += [sum_rows(x * scale, reward), sum_rows(x, reward * scale), sum_rows(mixed, mixed @ np.ones(6))]
    check(*users)


def test_sums_of_very_many_rows_pass():
    rng, x, reward = draw(0, 1000, 8)
    x[:, 7] = x[:, :7].sum(axis=1)
    count, square_sum, moment, gram = sum_rows(x, reward)
    noise = 1 + 2e-9 * rng.standard_normal((9, 9))  # 1e10 rows, added one by one, err by about 1e-11 to 1e-6
    many = 1e7
    check((many * count, many * square_sum, many * moment * noise[8, :8], many * gram * (noise + noise.T)[:8, :8] / 2))


def test_sums_made_by_duckdb_pass(tmp_path):
    rng, x, reward = draw(0, 3000, 3)
    user = np.sort(rng.integers(0, 1500, 3000))
    events = pa.table({"user": user, "reward": reward.astype(np.float32), **{n: x[:, j] for j, n in enumerate("abc")}})
    cells = [f"sum({i} * {j})" for i in "abc" for j in "abc"]
    query = f"""SELECT user, count(*) AS count, sum(reward * reward) AS square_sum,
        [{", ".join(f"sum(reward * {i})" for i in "abc")}] AS moment, [{", ".join(cells)}] AS gram
        FROM events GROUP BY user"""
    duckdb.sql(f"COPY ({query}) TO '{tmp_path / 's.parquet'}' (FORMAT parquet)")
    stats = read_user_statistics(tmp_path / "s.parquet", features=("a", "b", "c"))
    assert stats.n_events == len(events)
    assert stats.count.min() == 1


# What no rows have


def refusal(*users):
    with pytest.raises(EventError) as caught:
        check(*users)
    return str(caught.value)


@pytest.mark.parametrize("d", [2, 4, 50])
@pytest.mark.parametrize("scale", [1e-50, 1.0, 1e50])
def test_a_count_below_the_rank_is_refused(d, scale):
    _, x, reward = draw(d, d + 3, d)
    good = sum_rows(x * scale, reward)
    check(good, (d + 1.0, *good[1:]))
    assert refusal(good, (float(d), *good[1:])) == (
        f"s.parquet row 2: count is {d}, but the other sums are those of at least {d + 1} rows; sum the same rows"
    )
    explained = sum_rows(x * scale, x @ np.ones(d))
    check(good, (float(d), *explained[1:]))
    assert f"row 1: count is 1, but the other sums are those of at least {d} rows" in refusal((1.0, *explained[1:]))


@pytest.mark.parametrize("d", [2, 4, 50])
@pytest.mark.parametrize("scale", [1e-50, 1.0, 1e50])
def test_a_residual_sum_of_squares_below_0_is_refused(d, scale):
    _, x, noise = draw(d, 40 * d, d)
    good = sum_rows(x * scale, x.sum(axis=1) + 0.3 * noise)
    count, square_sum, moment, gram = good
    residual = square_sum - moment @ np.linalg.solve(gram, moment)
    check((count, square_sum - 0.99 * residual, moment, gram))
    said = refusal(good, good, (count, square_sum - 1.1 * residual, moment, gram))
    assert "row 3: square_sum is smaller than moment and gram allow: squared residuals would add up to less" in said


@pytest.mark.parametrize("d", [3, 4, 50])
@pytest.mark.parametrize("scale", [1e-50, 1.0, 1e50])
def test_a_gram_that_is_not_positive_semidefinite_is_refused(d, scale):
    _, x, reward = draw(d, 3 * d, d)
    good = sum_rows(x * scale, reward)
    size = np.sqrt(np.diag(good[3]))
    gram = np.where(np.eye(d, dtype=bool), good[3], -0.9 * size[:, None] * size)
    said = refusal(good, (good[0], good[1], 0 * good[2], gram))
    assert "row 2: gram is not positive semidefinite, as sums of x[i] * x[j] are" in said


def test_the_row_is_named_also_beyond_the_first_block():
    _, x, reward = draw(0, 60, 50)
    good = sum_rows(x, reward)
    assert "row 4001: count is 1, but" in refusal(*[good] * 4000, (1.0, *good[1:]))


@pytest.mark.parametrize("count", [0.0, -3.0, 1.5, 2.0**53, 2.0**62, 1e300, np.inf, np.nan])
def test_a_count_is_a_whole_number_below_two_to_53(count):
    _, x, reward = draw(0, 5, 2)
    good = sum_rows(x, reward)
    check((2.0**53 - 1, *good[1:]))
    assert "row 2: count is no whole number above 0 and below 2^53" in refusal(good, (count, *good[1:]))


# Tables


def write(path, users, names=None):
    count, square_sum, moment, gram = zip(*users, strict=True)
    lists = {"moment": [m.tolist() for m in moment], "gram": [g.ravel().tolist() for g in gram]}
    columns = {"count": count, "square_sum": square_sum, **lists}
    pq.write_table(pa.table(columns | ({} if names is None else {"user": names})), path)
    return path


@pytest.fixture
def users():
    return [sum_rows(*draw(seed, 6, 4)[1:]) for seed in range(3)]


def test_the_number_of_names_must_be_that_of_the_features(tmp_path, users):
    path = write(tmp_path / "s.parquet", users)
    with pytest.raises(
        InputError, match=r"columns names 3 features \(a, b, c\), but the lists of .*s\.parquet are of 4"
    ):
        read_user_statistics(path, features=("a", "b", "c"))
    with pytest.raises(InputError, match=r"columns has a more than once; give each feature of the lists"):
        read_user_statistics(path, features=("a", "a", "b", "c"))
    assert read_user_statistics(path, features=("a", "b", "c", "d")).features == ("a", "b", "c", "d")


@pytest.mark.parametrize("cut", [10, 4])
def test_a_gram_of_another_length_is_told_what_is_wanted(tmp_path, users, cut):
    table = pq.read_table(write(tmp_path / "s.parquet", users))
    lists = [row[:cut] for row in table["gram"].to_pylist()]
    pq.write_table(table.set_column(3, "gram", pa.array(lists)), tmp_path / "s.parquet")
    with pytest.raises(EventError, match=rf"row 1: gram has {cut} numbers, moment has 4: all 4 \* 4 = 16 sums of"):
        read_user_statistics(tmp_path / "s.parquet")


def test_lists_that_change_their_length_are_named_by_their_row(tmp_path, users):
    table = pq.read_table(write(tmp_path / "s.parquet", users))
    lists = [row[: 4 - i // 2] for i, row in enumerate(table["moment"].to_pylist())]
    pq.write_table(table.set_column(2, "moment", pa.array(lists)), tmp_path / "s.parquet")
    with pytest.raises(EventError, match="row 3: moment has 3 numbers, the rows before 4"):
        read_user_statistics(tmp_path / "s.parquet", features=tuple("abcd"))


def test_a_user_in_two_tables_is_told_with_both(tmp_path, users):
    write(tmp_path / "a.parquet", users, ["ann", "bob", "cid"])
    write(tmp_path / "b.parquet", users, ["dan", "eve", "flo"])
    write(tmp_path / "c.parquet", users, ["gus", "eve", "hal"])
    with pytest.raises(EventError, match=r"c\.parquet row 2: user 'eve' is in .*b\.parquet too; give a user one row"):
        read_user_statistics(tmp_path / "*.parquet")
    write(tmp_path / "c.parquet", users, ["gus", "ida", "gus"])
    with pytest.raises(EventError, match=r"c\.parquet row 3: user 'gus' is there twice; GROUP BY user"):
        read_user_statistics(tmp_path / "*.parquet")
    write(tmp_path / "c.parquet", users, ["gus", "ida", "jon"])
    assert read_user_statistics(tmp_path / "*.parquet").n_users == 9


def test_users_of_tables_are_of_one_type_and_in_all_or_none(tmp_path, users):
    write(tmp_path / "a.parquet", users, ["1", "2", "3"])
    write(tmp_path / "b.parquet", users, [4, 5, 6])
    with pytest.raises(InputError, match=r"b\.parquet column user holds integers, .*a\.parquet text; convert one"):
        read_user_statistics(tmp_path / "*.parquet")
    write(tmp_path / "b.parquet", users)
    with pytest.raises(InputError, match=r"a\.parquet has a column user, .*b\.parquet none; give it in all tables"):
        read_user_statistics(tmp_path / "*.parquet")
