-- daily actives
SELECT CAST(ts AS DATE) AS day, COUNT(DISTINCT user_id) AS dau FROM events GROUP BY 1 ORDER BY 1;
-- weekly actives
SELECT DATE_TRUNC('week', ts) AS week, COUNT(DISTINCT user_id) AS wau FROM events GROUP BY week;
-- hour of day
SELECT EXTRACT(HOUR FROM ts) AS hour, COUNT(*) AS n FROM events GROUP BY hour HAVING COUNT(*) > 20 ORDER BY hour;
-- funnel by filter
SELECT COUNT(DISTINCT CASE WHEN event = 'view' THEN user_id END) AS viewed, COUNT(DISTINCT CASE WHEN event = 'buy' THEN user_id END) AS bought FROM events;
-- funnel by per-unit flags
SELECT SUM(viewed) AS viewed, SUM(bought) AS bought FROM (SELECT user_id, MAX(CASE WHEN event = 'view' THEN 1 ELSE 0 END) AS viewed, MAX(CASE WHEN event = 'buy' THEN 1 ELSE 0 END) AS bought FROM events GROUP BY user_id) AS f;
-- conversion, ratio of filters
SELECT device, COUNT(*) FILTER (WHERE event = 'buy') * 1.0 / COUNT(*) AS rate FROM events GROUP BY device;
-- conversion, nullif, cast, round
SELECT device, ROUND(100.0 * CAST(SUM(CASE WHEN event = 'buy' THEN 1 ELSE 0 END) AS DOUBLE) / NULLIF(COUNT(*), 0), 2) AS rate FROM events GROUP BY device;
-- retention by join on the unit
SELECT DATE_TRUNC('month', u.signup) AS cohort, COUNT(DISTINCT e.user_id) AS active FROM users u JOIN events e ON u.user_id = e.user_id WHERE e.ts >= u.signup GROUP BY cohort;
-- ab test
SELECT plan, AVG(age) AS a, STDDEV(age) AS s, COUNT(*) AS n FROM users GROUP BY plan ORDER BY plan;
-- ab lift over released
WITH r AS (SELECT plan, AVG(age) AS a FROM users GROUP BY plan) SELECT MAX(CASE WHEN plan = 'pro' THEN a END) - MAX(CASE WHEN plan = 'free' THEN a END) AS lift FROM r;
-- top products
SELECT product_id, COUNT(*) AS n FROM orders GROUP BY product_id ORDER BY n DESC LIMIT 5;
-- top products with rank
SELECT product_id, SUM(amount) AS s, DENSE_RANK() OVER (ORDER BY SUM(amount) DESC) AS place FROM orders GROUP BY product_id ORDER BY place LIMIT 3;
-- share of total
SELECT country, COUNT(*) AS n, ROUND(COUNT(*) / SUM(COUNT(*)) OVER (), 3) AS share FROM users GROUP BY country;
-- running total
SELECT month, revenue, SUM(revenue) OVER (ORDER BY month) AS so_far FROM (SELECT DATE_TRUNC('month', ts) AS month, SUM(amount) AS revenue FROM orders GROUP BY month) AS m ORDER BY month;
-- growth by lag
WITH m AS (SELECT DATE_TRUNC('month', ts) AS month, COUNT(*) AS n FROM orders GROUP BY 1) SELECT month, n - LAG(n) OVER (ORDER BY month) AS growth FROM m ORDER BY month;
-- rollup
SELECT country, plan, COUNT(*) AS n FROM users GROUP BY ROLLUP (country, plan);
-- cube
SELECT country, plan, SUM(age) AS s FROM users GROUP BY CUBE (country, plan);
-- grouping sets
SELECT device, event, COUNT(*) AS n FROM events GROUP BY GROUPING SETS ((device), (event), ());
-- union of totals
SELECT 'orders' AS what, COUNT(*) AS n FROM orders UNION ALL SELECT 'events', COUNT(*) FROM events;
-- scalar subqueries
SELECT (SELECT COUNT(*) FROM orders) AS orders, (SELECT COUNT(*) FROM users) AS users;
-- strftime on a column
SELECT STRFTIME(ts, '%Y-%m') AS month, COUNT(*) AS n FROM orders GROUP BY month;
-- interval arithmetic
SELECT COUNT(*) AS n FROM events e JOIN users u USING (user_id) WHERE e.ts < u.signup + INTERVAL 7 DAY;
-- histogram by width
SELECT FLOOR(amount / 10) AS bin, COUNT(*) AS n FROM orders GROUP BY bin ORDER BY bin;
-- last event of each user
SELECT device, COUNT(*) AS n FROM (SELECT user_id, device FROM events QUALIFY ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts DESC, device) = 1) AS t GROUP BY device;
-- running sum per user
SELECT COUNT(DISTINCT user_id) AS reached FROM (SELECT user_id, SUM(amount) OVER (PARTITION BY user_id ORDER BY ts) AS so_far FROM orders) AS t WHERE so_far > 60;
-- string on released keys
SELECT country || ' / ' || plan AS label, COUNT(*) AS n FROM users GROUP BY country, plan ORDER BY label;
-- case on released
SELECT country, CASE WHEN COUNT(*) > 60 THEN 'large' ELSE 'small' END AS size FROM users GROUP BY country;
-- ntile on released
SELECT country, NTILE(2) OVER (ORDER BY AVG(age)) AS half FROM users GROUP BY country;
-- percent of parent
SELECT country, plan, COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY country) AS share FROM users GROUP BY country, plan;
-- mode; refuse
SELECT MODE(device) AS d FROM events;
-- rows; refuse
SELECT user_id, MAX(ts) AS last_seen FROM events GROUP BY user_id ORDER BY last_seen DESC LIMIT 10;
-- list of people; refuse
SELECT LIST(user_id) AS them FROM events WHERE event = 'buy';
-- others' rows; refuse
SELECT COUNT(*) AS n FROM orders o WHERE o.amount > (SELECT MAX(amount) FROM orders p WHERE p.product_id = o.product_id AND p.user_id <> o.user_id);
