-- datediff in where, join on the unit
SELECT COUNT(*) AS n FROM users u JOIN orders o ON u.user_id = o.user_id WHERE DATEDIFF('day', u.signup, CAST(o.ts AS DATE)) BETWEEN 0 AND 30;
-- dayname on a column
SELECT DAYNAME(ts) AS d, SUM(amount) AS s FROM orders GROUP BY d;
-- to_char
SELECT TO_CHAR(ts, 'YYYY-MM') AS month, COUNT(DISTINCT user_id) AS users FROM orders GROUP BY month; -- duck: SELECT STRFTIME(ts, '%Y-%m') AS month, COUNT(DISTINCT user_id) AS users FROM orders GROUP BY month
-- width_bucket
SELECT WIDTH_BUCKET(amount, 0, 50, 5) AS bucket, COUNT(*) AS n FROM orders GROUP BY bucket; -- duck: SELECT 1 + FLOOR(amount / 10) AS bucket, COUNT(*) AS n FROM orders GROUP BY bucket
-- nvl
SELECT NVL(status, 'none') AS s, AVG(amount) AS a FROM orders GROUP BY 1; -- duck: SELECT COALESCE(status, 'none') AS s, AVG(amount) AS a FROM orders GROUP BY 1
-- split_part
SELECT SPLIT_PART(country || '-' || plan, '-', 2) AS p, COUNT(*) AS n FROM users GROUP BY p;
-- div0
SELECT DIV0(SUM(amount), COUNT(*)) AS mean FROM orders; -- duck: SELECT SUM(amount) / COUNT(*) AS mean FROM orders
-- dateadd
SELECT COUNT(DISTINCT user_id) AS n FROM events WHERE ts >= DATEADD('day', -30, DATE '2025-06-30'); -- duck: SELECT COUNT(DISTINCT user_id) AS n FROM events WHERE ts >= DATE '2025-06-30' - INTERVAL 30 DAY
-- approx percentile; approx
SELECT status, APPROX_PERCENTILE(amount, 0.9) AS p FROM orders GROUP BY status; -- duck: SELECT status, QUANTILE_CONT(amount, 0.9) AS p FROM orders GROUP BY status
-- attribution window
SELECT e.device, SUM(o.amount) AS s FROM events e INNER JOIN orders o ON e.user_id = o.user_id WHERE o.ts BETWEEN e.ts AND e.ts + INTERVAL '7 days' GROUP BY e.device;
