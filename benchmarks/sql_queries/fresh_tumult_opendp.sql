-- unnest in the from by comma
SELECT tag, COUNT(DISTINCT user_id) AS n FROM baskets, UNNEST(tags) AS t(tag) GROUP BY tag;
-- unnest with a join
SELECT u.plan, COUNT(*) AS n FROM (SELECT user_id, UNNEST(tags) AS tag FROM baskets) AS b JOIN users u USING (user_id) WHERE tag = 'sale' GROUP BY u.plan;
-- length of a list
SELECT AVG(LEN(tags)) AS a FROM baskets; -- bounds: a=0:5
-- list contains
SELECT COUNT(*) AS n FROM baskets WHERE list_contains(tags, 'gift');
-- any of a list
SELECT COUNT(*) AS n FROM baskets WHERE 'new' = ANY(tags);
-- binned with floor and cast
SELECT CAST(FLOOR(amount / 5) AS INTEGER) * 5 AS bin, COUNT(*) AS n FROM orders GROUP BY bin;
-- quantile by group; approx
SELECT plan, QUANTILE_CONT(age, 0.9) AS q FROM users GROUP BY plan;
-- stdev, filter
SELECT country, STDDEV_POP(age) AS s FROM users WHERE signup >= DATE '2025-03-01' GROUP BY country;
-- join of public, filter of public
SELECT continent, AVG(age) AS a FROM users JOIN countries USING (country) WHERE continent <> 'Asia' GROUP BY continent;
-- keep first row per user
SELECT SUM(amount) AS s FROM (SELECT user_id, amount, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts, amount) AS r FROM orders) AS t WHERE r <= 2;
-- integer division
SELECT product_id // 4 AS shelf, COUNT(*) AS n FROM orders GROUP BY shelf;
-- group by several with declared keys
SELECT plan, country, AVG(age) AS a, COUNT(*) AS n FROM users GROUP BY ALL;
