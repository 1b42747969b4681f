-- date_trunc and iff
SELECT DATE_TRUNC('month', ts) AS m, SUM(IFF(status = 'paid', amount, 0)) AS paid FROM orders GROUP BY 1; -- duck: SELECT DATE_TRUNC('month', ts) AS m, SUM(CASE WHEN status = 'paid' THEN amount ELSE 0 END) AS paid FROM orders GROUP BY 1
-- datediff, dateadd
SELECT COUNT(*) AS n FROM orders o JOIN users u ON o.user_id = u.user_id WHERE DATEDIFF('day', u.signup, o.ts) BETWEEN 0 AND 30; -- duck: SELECT COUNT(*) AS n FROM orders o JOIN users u ON o.user_id = u.user_id WHERE DATEDIFF('day', u.signup, CAST(o.ts AS DATE)) BETWEEN 0 AND 30
-- nvl, zeroifnull on output
SELECT status, NVL(SUM(amount), 0) AS s FROM orders GROUP BY status; -- duck: SELECT status, COALESCE(SUM(amount), 0) AS s FROM orders GROUP BY status
-- pivot
PIVOT (SELECT status, product_id FROM orders) ON status USING COUNT(*) GROUP BY product_id;
-- pivot in from
SELECT * FROM (SELECT device, event, COUNT(*) AS n FROM events GROUP BY device, event) PIVOT (SUM(n) FOR event IN ('view', 'cart', 'buy'));
-- rollup with grouping
SELECT country, COUNT(*) AS n, GROUPING(country) AS g FROM users GROUP BY ROLLUP (country);
-- approx count distinct
SELECT country, APPROX_COUNT_DISTINCT(user_id) AS n FROM users GROUP BY country; -- duck: SELECT country, COUNT(DISTINCT user_id) AS n FROM users GROUP BY country
-- moving average over a released table
SELECT day, AVG(n) OVER (ORDER BY day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS smooth FROM (SELECT CAST(ts AS DATE) AS day, COUNT(*) AS n FROM orders GROUP BY 1) AS d ORDER BY day;
-- join of a released table with a public one
SELECT p.category, s.n FROM (SELECT product_id, COUNT(*) AS n FROM orders GROUP BY product_id) AS s JOIN products p USING (product_id);
-- released exists
WITH c AS (SELECT country, COUNT(*) AS n FROM users GROUP BY country) SELECT country FROM c WHERE n >= (SELECT AVG(n) FROM c) ORDER BY country;
-- split_part, regexp_replace
SELECT SPLIT_PART(CAST(signup AS VARCHAR), '-', 2) AS month, COUNT(*) AS n FROM users GROUP BY month;
-- to_char
SELECT TO_CHAR(ts, 'YYYY-MM') AS month, COUNT(*) AS n FROM orders GROUP BY month; -- duck: SELECT STRFTIME(ts, '%Y-%m') AS month, COUNT(*) AS n FROM orders GROUP BY month
-- boolean aggregates per unit
SELECT COUNT(*) AS n FROM (SELECT user_id, BOOL_OR(event = 'buy') AS bought FROM events GROUP BY user_id) AS t WHERE bought;
-- count_if
SELECT device, COUNT_IF(event = 'view') AS v FROM events GROUP BY device;
