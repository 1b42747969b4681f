-- sum
SELECT SUM(amount) AS total FROM orders;
-- group, sum
SELECT status, SUM(amount) AS total, AVG(amount) AS mean FROM orders GROUP BY status;
-- join on the unit
SELECT u.plan, COUNT(*) AS n FROM users AS u JOIN orders AS o ON u.user_id = o.user_id GROUP BY u.plan;
-- join on the unit, using
SELECT plan, SUM(amount) AS s FROM users JOIN orders USING (user_id) GROUP BY plan;
-- comma join
SELECT COUNT(*) AS n FROM users u, orders o WHERE u.user_id = o.user_id AND o.amount > 20;
-- comma join
SELECT u.country, AVG(o.amount) AS m FROM users u, orders o WHERE o.user_id = u.user_id GROUP BY u.country;
-- natural join
SELECT status, COUNT(*) AS n FROM users NATURAL JOIN orders GROUP BY status;
-- right join
SELECT COUNT(o.amount) AS n FROM orders o RIGHT JOIN users u ON o.user_id = u.user_id;
-- full join
SELECT COUNT(*) AS n FROM users u FULL OUTER JOIN orders o ON o.user_id = u.user_id;
-- left join
SELECT plan, COUNT(amount) AS n FROM users u LEFT JOIN orders o ON o.user_id = u.user_id GROUP BY plan;
-- join public
SELECT p.category, SUM(o.amount) AS s FROM orders o JOIN products p ON o.product_id = p.product_id GROUP BY p.category;
-- cte
WITH big AS (SELECT user_id, amount FROM orders WHERE amount > 30) SELECT COUNT(*) AS n, AVG(amount) AS m FROM big;
-- cte of released
WITH s AS (SELECT status, COUNT(*) AS n FROM orders GROUP BY status) SELECT status, n FROM s WHERE n > 100;
-- cte of released, outer aggregate over grouped
WITH s AS (SELECT status, COUNT(*) AS n FROM orders GROUP BY status) SELECT SUM(n) AS total, MIN(n) AS least FROM s;
-- cte of released, join of released
WITH a AS (SELECT status, COUNT(*) AS n FROM orders GROUP BY status), b AS (SELECT status, SUM(amount) AS s FROM orders GROUP BY status) SELECT a.status, b.s / a.n AS mean FROM a JOIN b ON a.status = b.status;
-- scalar subquery among outputs
SELECT status, COUNT(*) / (SELECT COUNT(*) FROM orders) AS share FROM orders GROUP BY status;
-- per unit, then aggregate
SELECT AVG(n) AS orders_per_user FROM (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id) AS t; -- bounds: n=0:50
-- per unit, then aggregate, subquery without alias
SELECT COUNT(*) AS heavy FROM (SELECT user_id, SUM(amount) AS s FROM orders GROUP BY user_id) WHERE s > 100;
-- per unit having
SELECT COUNT(*) AS heavy FROM (SELECT user_id FROM orders GROUP BY user_id HAVING COUNT(*) > 3) AS t;
-- in subquery on the unit
SELECT COUNT(*) AS n FROM orders WHERE user_id IN (SELECT user_id FROM users WHERE plan = 'pro');
-- exists on the unit
SELECT COUNT(*) AS n FROM users u WHERE EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.user_id AND o.amount > 40);
-- not exists on the unit
SELECT COUNT(*) AS n FROM users u WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.user_id AND o.status = 'returned');
-- in subquery on a public table
SELECT SUM(amount) AS s FROM orders WHERE product_id IN (SELECT product_id FROM products WHERE category = 'toys');
-- exists on a public table
SELECT COUNT(*) AS n FROM orders o WHERE EXISTS (SELECT 1 FROM products p WHERE p.product_id = o.product_id AND p.price > 5);
-- union all of rows
SELECT COUNT(*) AS n FROM (SELECT user_id, amount FROM orders WHERE status = 'paid' UNION ALL SELECT user_id, amount FROM orders WHERE status = 'open') AS t;
-- union of rows
SELECT COUNT(*) AS n FROM (SELECT user_id, product_id FROM orders WHERE status = 'paid' UNION SELECT user_id, product_id FROM orders WHERE amount > 30) AS t;
-- union of released
SELECT status AS k, COUNT(*) AS n FROM orders GROUP BY status UNION SELECT plan, COUNT(*) FROM users GROUP BY plan;
-- sum distinct
SELECT SUM(DISTINCT product_id) AS s FROM orders;
-- count distinct
SELECT COUNT(DISTINCT product_id) AS n FROM orders;
-- avg distinct
SELECT status, AVG(DISTINCT product_id) AS a FROM orders GROUP BY status;
-- coalesce, having
SELECT COALESCE(status, 'none') AS s, COUNT(*) AS n FROM orders GROUP BY 1 HAVING SUM(amount) > 100 ORDER BY 2 DESC, 1 LIMIT 2;
-- schema prefix
SELECT COUNT(*) AS n FROM main.orders AS o WHERE o.amount < 20;
-- functions of a column
SELECT SUM(GREATEST(amount - 10, 0)) AS s, AVG(SQRT(amount)) AS r, SUM(ABS(amount - 25)) AS d FROM orders;
-- functions of a column, log
SELECT AVG(LOG(amount + 1)) AS l FROM orders; -- duck: SELECT AVG(LOG10(amount + 1)) AS l FROM orders
-- rows; refuse
SELECT user_id, amount FROM orders WHERE amount > 10 LIMIT 10;
-- join not on the unit; refuse
SELECT COUNT(*) AS n FROM orders a JOIN orders b ON a.product_id = b.product_id;
-- outer join public to protected; refuse
SELECT p.category, COUNT(*) AS n FROM products p LEFT JOIN orders o ON o.product_id = p.product_id GROUP BY p.category;
-- window over rows; refuse
SELECT AVG(s) AS a FROM (SELECT user_id, SUM(amount) OVER (PARTITION BY status) AS s FROM orders) AS t;
-- subquery with limit; refuse
SELECT SUM(amount) AS s FROM (SELECT user_id, amount FROM orders ORDER BY amount DESC LIMIT 10) AS t;
