-- full join, count of a side
SELECT COUNT(u.plan) AS n, COUNT(o.amount) AS m FROM users u FULL JOIN orders o ON u.user_id = o.user_id AND o.status = 'paid';
-- full join, coalesce
SELECT COALESCE(u.plan, 'none') AS plan, COUNT(*) AS n FROM users u FULL OUTER JOIN events e ON u.user_id = e.user_id GROUP BY 1;
-- natural left join
SELECT plan, COUNT(*) AS n FROM users NATURAL LEFT JOIN orders GROUP BY plan;
-- right join using
SELECT plan, SUM(amount) AS s FROM orders RIGHT JOIN users USING (user_id) GROUP BY plan;
-- right join as the second join
SELECT u.plan, COUNT(*) AS n FROM events e JOIN orders o ON e.user_id = o.user_id AND o.status = 'paid' RIGHT JOIN users u ON u.user_id = o.user_id GROUP BY u.plan;
-- three tables by comma
SELECT u.country, SUM(o.amount) AS s FROM users u, orders o, products p WHERE u.user_id = o.user_id AND p.product_id = o.product_id AND p.price > 3 GROUP BY u.country;
-- in with a group by and having
SELECT plan, COUNT(*) AS n FROM users WHERE user_id IN (SELECT user_id FROM orders GROUP BY user_id HAVING SUM(amount) > 80) GROUP BY plan;
-- not in on the unit
SELECT COUNT(*) AS n FROM users WHERE user_id NOT IN (SELECT user_id FROM orders WHERE status = 'paid');
-- exists with an inequality
SELECT COUNT(*) AS n FROM orders o WHERE EXISTS (SELECT 1 FROM orders p WHERE p.user_id = o.user_id AND p.amount > o.amount);
-- not exists with an inequality: the last order of each
SELECT status, COUNT(*) AS n FROM orders o WHERE NOT EXISTS (SELECT 1 FROM orders p WHERE p.user_id = o.user_id AND p.ts > o.ts) GROUP BY status;
-- scalar subquery on a public table
SELECT COUNT(*) AS n FROM orders WHERE amount > (SELECT AVG(price) FROM products);
-- scalar subquery on the unit
SELECT COUNT(*) AS n FROM orders o WHERE amount > (SELECT AVG(amount) FROM orders p WHERE p.user_id = o.user_id);
-- exists in or
SELECT COUNT(*) AS n FROM users u WHERE u.plan = 'pro' OR EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.user_id AND o.amount > 45);
-- union distinct of units
SELECT COUNT(*) AS n FROM (SELECT user_id FROM orders UNION SELECT user_id FROM events) AS t;
-- intersect
SELECT COUNT(*) AS n FROM (SELECT user_id FROM orders INTERSECT SELECT user_id FROM events WHERE event = 'buy') AS t;
-- except
SELECT COUNT(*) AS n FROM (SELECT user_id FROM users EXCEPT SELECT user_id FROM orders) AS t;
-- cte used twice
WITH o AS (SELECT user_id, amount FROM orders WHERE status = 'paid') SELECT COUNT(*) AS n FROM o AS a JOIN o AS b ON a.user_id = b.user_id AND a.amount < b.amount;
-- cte with column names
WITH t(who, spent) AS (SELECT user_id, SUM(amount) FROM orders GROUP BY user_id) SELECT COUNT(*) AS n, SUM(spent) AS s FROM t WHERE spent > 20; -- bounds: spent=0:1000
-- sum distinct by group
SELECT status, SUM(DISTINCT product_id) AS s, COUNT(DISTINCT product_id) AS n FROM orders GROUP BY status;
-- cross join with a public table; refuse
SELECT c.continent, COUNT(*) AS n FROM countries c LEFT JOIN users u ON c.country = u.country AND u.age > 70 GROUP BY c.continent;
-- frame in a unit window
SELECT SUM(prev) AS s FROM (SELECT user_id, SUM(amount) OVER (PARTITION BY user_id ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS prev FROM orders) AS t; -- bounds: prev=0:100
-- named window
SELECT COUNT(*) AS n FROM (SELECT user_id, ROW_NUMBER() OVER w AS r FROM orders WINDOW w AS (PARTITION BY user_id ORDER BY ts)) AS t WHERE r = 2;
-- distinct on
SELECT status, COUNT(*) AS n FROM (SELECT DISTINCT ON (user_id) user_id, status FROM orders ORDER BY user_id, ts DESC) AS t GROUP BY status;
-- log, power, sqrt, trunc in derived bounds
SELECT SUM(LN(1 + amount)) AS a, AVG(POWER(amount, 2)) AS b, SUM(SQRT(amount)) AS c, SUM(ROUND(amount / 3, 1)) AS d FROM orders;
-- least, nullif, coalesce
SELECT AVG(LEAST(amount, 20)) AS a, SUM(COALESCE(NULLIF(amount, 0), 1)) AS b FROM orders;
