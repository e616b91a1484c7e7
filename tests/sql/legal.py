"""SQL that people write, which must give exactly what SQLite gives. Over the tables of `planted`."""

LEGAL: tuple[str, ...] = (
    # selecting
    "select * from users",
    "select id, name from users where age > 20 order by age desc",
    "select u.id, u.name as who from users as u where u.age between 20 and 40 and u.name like 'user%' order by 1",
    "select distinct age / 20 from users order by 1",
    "select all name from users order by name limit 2 offset 1",
    "select name from users order by id limit 1, 3",
    "select users.* , 1 from users order by id",
    'select "name", [age], `secret` from "users" order by id',
    "select name \"the name\", age 'the age' from users order by id",
    "select name /* who */ from users -- all of them\n order by id",
    "select id, id, name, id from users order by id",
    "select count(*), COUNT( * ), count(distinct age), sum(age), avg(age), total(age), min(age), max(age) from users",
    "select rowid from open order by rowid",
    "select max(age), name from users",
    "select min(age), name, secret from users where id > 2",
    'select "select", "a b", "名" from "odd ""table"" 表"',
    "select * from adults order by id",
    "select * from counted",
    "values (1, 'a'), (2, 'b')",
    "select * from (values (1, 'a'), (2, 'b')) as v",
    "select 1 where 0",
    # joining
    "select u.name, o.total from users u join orders o on o.user_id = u.id order by o.total",
    "select u.name, o.total from users u left join orders o on o.user_id = u.id and o.total > 4 order by u.id",
    "select u.name, o.total from orders o right join users u on o.user_id = u.id and o.total > 4 order by u.id",
    "select u.id, o.id from users u full outer join orders o on o.id = u.id + 3 order by 1, 2",
    "select count(*) from users cross join open",
    "select count(*) from users, open, docs where users.id = docs.id and open.id = docs.id",
    "select * from users natural join (select id, total from orders) order by id",
    "select id, total, name from users join orders using (id) order by id",
    "select a.id, b.id from users a, users b where a.age < b.age and b.age <= 30 order by 1, 2",
    "select * from (users join orders on orders.user_id = users.id) order by users.id limit 1",
    "select u.id from users u inner join open as o on o.id = u.id left join docs d on d.id = o.n order by u.id",
    # grouping
    "select age > 30 as old, count(*) as how_many from users group by old having count(*) > 1 order by old",
    "select age % 20, group_concat(name, '; ') from (select * from users order by id) group by 1 order by 1",
    "select group_concat(distinct age % 20) from users",
    "select count(*) filter (where age > 20), sum(age) filter (where age < 0) from users",
    "select tenant, count(*) from users group by tenant, age > 100",
    "select count(*) from users group by 1 = 1",
    # compound
    "select id from users union select id from open order by id",
    "select id from users union all select id from open order by 1 desc limit 4",
    "select id from users intersect select id from open order by id",
    "select id from users except select id from open order by id",
    "select 1 union select 2 union all select 2 except select 1 order by 1",
    "select name from users where id = 1 union all values ('x')",
    # subqueries
    "select name from users where id in (select user_id from orders where total > 4) order by id",
    "select name from users u where exists (select 1 from orders o where o.user_id = u.id and o.total > 7)",
    "select name, (select sum(total) from orders o where o.user_id <= u.id) as so_far from users u order by id",
    "select * from (select age, count(*) as n from users group by age) where n = 1 order by age",
    "select name from users where age = (select max(age) from users)",
    "select name from users where (id, age) in (select id, age from users where id < 3) order by id",
    "select id not in (1, 2), id in (), not id in (1) from users order by id",
    "select (1, 2) < (1, 3), (id, 1) = (2, 1) from users order by id",
    # common table expressions
    "with old as (select * from users where age > 30) select count(*) from old",
    "with a as (select 1 as x), b as (select x + 1 as y from a) select * from a, b",
    "with a (p, q) as materialized (select id, age from users) select sum(p), sum(q) from a",
    "with a as not materialized (select id from users) select count(*) from a x join a y on x.id = y.id",
    "with recursive c (n) as (select 1 union all select n + 1 from c where n < 5) select n, n * n from c",
    "with recursive fib (a, b) as (values (0, 1) union select b, a + b from fib where b < 50) select a from fib",
    "with recursive r as (select id, name from users where id = 1 union all select u.id, u.name from users u, r"
    " where u.id = r.id + 1) select name from r order by id desc",
    "select * from (with x as (select 2 as n) select n * 2 as m from x) as y",
    # windows
    "select id, row_number() over (order by age desc) from users order by id",
    "select id, rank() over w, dense_rank() over w, ntile(2) over w from users window w as (order by age"
    " / 20) order by id",
    "select id, sum(age) over (order by id rows between 1 preceding and 1 following) from users order by id",
    "select id, sum(age) over (order by age range between 10 preceding and current row) from users order by id",
    "select id, sum(age) over (order by age groups between unbounded preceding and 1 following exclude ties) from users"
    " order by id",
    "select id, lag(age, 1, -1) over (order by id), lead(name) over (order by id) from users order by id",
    "select id, first_value(name) over (partition by age % 20 order by id), nth_value(id, 2) over (order by id) from"
    " users order by id",
    "select id, count(*) filter (where age > 20) over (order by id), avg(age) over () from users order by id",
    "select id, percent_rank() over (order by id), cume_dist() over (order by id) from users order by id",
    "select id from users order by row_number() over (order by age desc)",
    # JSON
    "select json_extract(meta, '$.k'), meta -> '$.list', meta ->> '$.of', meta -> 'k', meta ->> 'list'"
    " from docs order by id",
    "select d.id, j.key, j.value, j.type from docs d, json_each(d.meta, '$.list') as j order by 1, 2",
    'select fullkey, atom from json_tree(\'{"a": [1, {"b": null}], "c.d": true}\')',
    "select json_object('a', id, 'b', json_array(1, 'x', null)), json_type(meta), json_valid(meta) from"
    " docs order by id",
    "select json_group_array(id), json_group_object(name, age) from (select * from users order by id)",
    "select '{\"a\": {\"b\": 2}}' -> 'a', '{\"a.b\": 1, \"a\": {\"b\": 2}}' ->> '$.a.b', '[7, 8]' -> 1",
    "select 1 /* one */, 2 -- two\n, 3 /* three */",
    "select distinct 1 is distinct from 2, count(*) from users -- from here",
    "select 1 -- the end",
    "select json_set('{}', '$.a', 1), json_insert('[1]', '$[#]', 2), json_remove('{\"a\": 1}', '$.a'),"
    " json_patch('{}', '{}')",
    # dates
    "select date(day, '+1 month', 'start of month', '-1 day'), strftime('%Y/%m/%d %H', day), julianday(day) from docs",
    "select datetime('2024-02-29 12:30:45', '+1 year'), time('12:00', '+90 minutes'), unixepoch('1970-01-02')",
    "select date('nonsense'), strftime('%w', '2024-01-01'), strftime('%s', '2024-01-01') - 1",
    "select count(*) from docs where day >= date('2024-03-01') and day < date('2024-05-01')",
    # expressions
    "select case when age < 30 then 'young' when age < 50 then 'grown' else 'old' end from users order by id",
    "select case age when 10 then 'ten' when 20 then 'twenty' end from users order by id",
    "select iif(age > 30, 'old', 'young'), coalesce(null, name), ifnull(null, 1), nullif(1, 1) from users order by id",
    "select name like '%2%', name not like 'x', name glob '*[12]*', name not glob 'x*', 'a%b' like"
    " 'a\\%b' escape '\\' from"
    " users order by id",
    "select age is null, age is not null, age isnull, age notnull, age not null, null is null, 1 is 1, 1"
    " is not 2 from users",
    "select label is null, label is 'one', label is not 'one', n is not distinct from 1, n is distinct"
    " from 1 from open",
    "select 5 / 2, 5.0 / 2, -5 / 2, 5 % 3, -5 % 3, 1 / 0, 2 * 3 + 4, 2 + 3 * 4, (2 + 3) * 4, 1 << 4, 255 >> 2",
    "select 6 & 3, 6 | 3, ~6, - -3, +3, not 1, not 0, not null, 1 and 0, 1 or null, 0 or null, 1 = 1 = 1, 1 < 2 < 3",
    "select 'a' || 'b' || 1 || null, 'a' || 1 + 2, -'3' || '4', 1 || 2 * 3",
    "select x'00ff', hex(x'00ff'), typeof(x'00'), 0x1F, 1e3, .5, 5., 9223372036854775807, -9223372036854775808",
    "select 'it''s', \"not a column\", '', 'ünïcödé 表'",
    "select cast('12.7' as integer), cast(1 as text), cast('1e3' as real), cast('x' as numeric), cast(3.0 as numeric),"
    " cast('7' as decimal(10, 2)), cast(8.9 as int), cast('ab' as blob), cast(65 as varchar(3)), cast('5' as date)",
    "select typeof(cast('1' as \"double precision\")), typeof(cast('1' as boolean)), cast('abc' as"
    " character varying (20))",
    "select 'A' = 'a' collate nocase, 'a ' = 'a' collate rtrim, name from users order by name collate nocase desc",
    "select age = '10', +age = '10', '10' = age, age + 0 = '10' from users where id = 1",
    "select true, false, 1 = true, 'x' is true, 5 is not false, 0 is false, null is not true",
    "select label from open order by label nulls last",
    "select label from open order by label desc nulls first, n asc",
    "select round(2.567, 2), abs(-3), sign(-2), length('表abc'), upper('abc'), lower('ABC'), trim('  x"
    " '), ltrim('xxa', 'x'),"
    " rtrim('axx', 'x'), replace('aaa', 'a', 'b'), substr('hello', 2, 3), substr('hello', -3), instr('hello', 'l'),"
    " unicode('a'), char(72, 105), quote('it''s'), printf('%05.1f|%-5s|%d', 3.14159, 'x', 42), format('%s', 'y')",
    "select min(3, 1, 2), max('a', 'b'), min(null, 1), soundex('Robert'), likely(1), typeof(random())",
    "select sum(total), avg(total), total(total) from orders where total > 1000",
    "select name from users where name in ('user 1 of company-a', 'user 3 of company-a') and not age = 10",
    "select a, b from (select 1 as a, 2 as b) where a between 0 and b and b not between 5 and 6",
    "select exists (select 1), not exists (select 1), (select 5), (select null)",
    "select k, v from pairs where (k, tenant) > ('k2', '') order by k limit 2",
    "select body from notes_fts where notes_fts match 'words' order by rank",
    "select snippet(notes_fts, 0, '[', ']', '…', 4), round(bm25(notes_fts), 3) from notes_fts where"
    " notes_fts match 'other'",
    "select interval, date, text from (select 1 as interval, 2 as date, 3 as text)",
    'select if_, "group", "order" from (select 1 as if_, 2 as "group", 3 as "order")',
    "select count(*)from users where(age)>10 and name<>''",
    "SELECT\tName\nFROM Users\r\nWHERE AGE>=10 Order By ID",
)
WITH_PARAMS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("select ?, ? from users where id = ?", ("a", None, 1)),
    ("with x as (select ? as p) select p, ? from x where ? limit ?", (1, 2.5, True, 3)),
    ("select name from users where age > ? and name like ? order by id limit ? offset ?", (10, "user%", 2, 1)),
    ("select id from users where id in (?, ?, ?) or name = (select max(name) from users where age < ?)", (1, 2, 9, 30)),
    ("select case when ? then ? else ? end, hex(?), typeof(?)", (0, 1, "x", b"\x00\xff", 2**62)),
    ("values (?, ?)", ("表", -(2**63))),
    ("select '?', \"?\", ? -- ?\n, /* ? */ ?", (1, 2)),
)
