-- min, max; approx
SELECT plan, MIN(age) AS low, MAX(age) AS high FROM users GROUP BY plan;
-- distinct rows of a unit
SELECT COUNT(*) AS n FROM (SELECT DISTINCT user_id, product_id FROM orders) AS t;
-- binned
SELECT age // 10 AS decade, COUNT(*) AS n FROM users GROUP BY decade;
-- count distinct of a column
SELECT country, COUNT(DISTINCT plan) AS plans FROM users GROUP BY country;
-- unnest of a list column
SELECT tag, COUNT(*) AS n FROM (SELECT user_id, UNNEST(tags) AS tag FROM baskets) AS t GROUP BY tag;
-- unnest of a list column, cross join
SELECT COUNT(DISTINCT b.user_id) AS n FROM baskets AS b CROSS JOIN UNNEST(b.tags) AS t(tag) WHERE t.tag = 'gift';
-- clamp, case null
SELECT plan, SUM(CASE WHEN age IS NULL THEN 0 ELSE LEAST(GREATEST(age, 18), 65) END) AS s FROM users GROUP BY plan;
